from scorefield.cli import main

main()
