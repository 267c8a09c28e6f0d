"""Check the packages as a stranger meets them: build the sdist and the wheel, install the wheel into a new environment,
and draw digits with it in an empty folder, with no network and no checkout.

    python scripts/check_wheel.py                                   # with this Python
    python scripts/check_wheel.py --python python3.12 --no-torch    # where PyTorch cannot be had: what works without it

A check that fails ends the program with status 1. It takes three minutes on two cores, and needs pip's index for the
packages that scorefield depends on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_MB = {"wheel": 22, "sdist": 22}
"""Larger packages hold something by accident: the pretrained models of MNIST have 18 MB."""
INSIDE = sorted(path.stem for path in (ROOT / "scorefield" / "weights").glob("*.safetensors"))
"""The pretrained models that come with the package."""
WANTED = {
    "wheel": [
        *(f"scorefield/weights/{name}.safetensors" for name in INSIDE),
        "scorefield/evaluation/mnist_classifier.safetensors",
        "scorefield/paper/demo.html",
        "scorefield/web/page/index.html",
        "scorefield/py.typed",
    ],
    "sdist": [
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "Makefile",
        "scorefield/__init__.py",
        "tests/conftest.py",
    ],
}
NO_NETWORK = """
import socket
def refuse(self, address, *rest):
    raise OSError(101, "the network is switched off for this check")
socket.socket.connect = socket.socket.connect_ex = refuse
"""
"""A sitecustomize.py, which Python imports before all else."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python to install into")
    parser.add_argument("--torch", default=this_torch(), help="what pip installs as PyTorch; default: %(default)s")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out and check what works without it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), options.python, "" if options.no_torch else options.torch)
    print("all is well")


def check(folder: Path, interpreter: str, torch: str) -> None:
    """Build, install and try the packages in this empty folder."""
    new_environment(folder / "building", sys.executable)
    call(python_of(folder / "building"), "-m", "pip", "install", "--quiet", "build")
    call(python_of(folder / "building"), "-m", "build", "--outdir", folder / "dist", ROOT)
    (wheel,), (sdist,) = (list((folder / "dist").glob(f"*{ending}")) for ending in (".whl", ".tar.gz"))
    with zipfile.ZipFile(wheel) as file:
        check_content("wheel", wheel, file.namelist())
    with tarfile.open(sdist) as tar:
        check_content("sdist", sdist, [name.partition("/")[2] for name in tar.getnames()])

    python = new_environment(folder / "empty", interpreter)
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet"]
    if torch:
        call(*install, torch)
        call(*install, wheel)
    else:
        needs = [need for need in requirements(wheel) if "extra ==" not in need and not need.startswith("torch")]
        call(*install, *needs)
        call(*install, "--no-deps", wheel)
    version = call(python, "--version").strip()
    call(python, "-m", "compileall", "-q", site_of(folder / "empty") / "scorefield")
    (folder / "offline").mkdir()
    (folder / "offline" / "sitecustomize.py").write_text(NO_NETWORK)
    (folder / "work").mkdir()
    try_commands(folder, torch=bool(torch))
    print(f"{version}: {wheel.name} works" + ("" if torch else ", as far as it can without PyTorch"))


def try_commands(folder: Path, *, torch: bool) -> None:
    """Use the installed package in an empty folder, with nothing but itself."""
    place, work = folder / "empty", folder / "work"
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SCOREFIELD"))}
    settings |= {"PYTHONPATH": str(folder / "offline"), "SCOREFIELD_DATA": str(folder / "data")}

    def scorefield(*arguments: str, fails: bool = False) -> str:
        return call(python_of(place), "-m", "scorefield", *arguments, folder=work, env=settings, fails=fails)

    expect(scorefield("--version") == f"scorefield {version_of_checkout()}\n", "--version")
    commands = [line.split()[0] for line in scorefield("--help").splitlines() if line.startswith("  ")]
    for name in commands:
        expect(f"scorefield {name}" in scorefield(name, "--help"), f"{name} --help")
    print(f"{len(commands)} commands explain themselves")
    listed = scorefield("models", "--json", "models.json")
    places = {name: model["where"] for name, model in json.loads((work / "models.json").read_text())["models"].items()}
    wanted = {name: "package" if name in INSIDE else "not here" for name in places}
    expect(places == wanted and {"mnist", "mnist-small", "unet-mnist"} <= set(INSIDE), f"models: {places}")
    print(listed)
    if not torch:
        return
    said = scorefield("info", "cifar10", fails=True)
    expect("SCOREFIELD_MODELS_URL" in said and "Traceback" not in said, f"a model that is not here: {said}")
    scorefield("sample", "unet-mnist", "-n", "16", "--label", "7", "--out", "sevens.png")
    expect((work / "sevens.png").stat().st_size > 1000, "a picture of sevens")
    scorefield("digits", "unet-mnist", "-n", "64", "--json", "digits.json")
    accepted = json.loads((work / "digits.json").read_text())["accepted"]
    expect(accepted > 0.8, f"64 samples, of which a classifier takes {accepted:.0%} for digits")
    print(f"64 samples without network and checkout: a classifier takes {accepted:.0%} for digits")


def check_content(kind: str, package: Path, names: list[str]) -> None:
    """What a package must hold, what it must not, and its size."""
    size = package.stat().st_size / 1e6
    print(f"{package.name}: {len(names)} files, {size:.1f} MB")
    expect(size < MOST_MB[kind], f"the {kind} has {size:.1f} MB, more than {MOST_MB[kind]}")
    for name in WANTED[kind]:
        expect(name in names, f"the {kind} has {name}")
    odd = [
        name for name in names if name.startswith(("weights/", "runs/", ".venv")) or name.endswith((".pyc", ".part"))
    ]
    expect(not odd, f"the {kind} has nothing that does not belong there: {odd[:5]}")


def requirements(wheel: Path) -> list[str]:
    """What the wheel depends on."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(file.read(name).decode()).get_all("Requires-Dist") or []


def this_torch() -> str:
    """The PyTorch that this environment has, or else the newest."""
    try:
        return f"torch=={metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        return "torch"


def version_of_checkout() -> str:
    return (ROOT / "scorefield" / "version.py").read_text().split('"')[1]


def new_environment(place: Path, interpreter: str) -> Path:
    call(interpreter, "-m", "venv", place)
    return python_of(place)


def python_of(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def site_of(place: Path) -> Path:
    (found,) = place.rglob("scorefield/version.py")
    return found.parents[1]


def call(
    *command: str | Path, folder: Path | None = None, env: dict[str, str] | None = None, fails: bool = False
) -> str:
    """Run a command; returns its stdout, or its stderr where it should fail."""
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True, encoding="utf-8"
    )
    expect((done.returncode != 0) == fails, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stderr if fails else done.stdout


def expect(condition: bool, what: str) -> None:
    if not condition:
        print(f"failed: {what}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
