"""scorefield results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from scorefield.cli.app import app, prepare_file, say


@app.command
def results(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("docs/results"),
    /,
    *,
    out: Path | None = None,
) -> None:
    """Make the results page from the reports in a folder: the paper's figures and numbers beside ours.

    Each report has its own folder DIR/NAME, as scorefield report --out DIR/NAME makes it: mnist, mnist-small,
    mnist-baseline, cifar10, ... The curves of the losses are drawn beside it. Your remarks on how a model was made go
    into DIR/NAME/remarks.md and appear on the page above its commands. Remarks on inpainting go into DIR/inpainting.md.

    Example: scorefield results docs/results --out docs/results.md

    Args:
        folder: The folder that holds the folders of the reports.
        out: The page, FILE.md. Default: beside the folder, with its name.
    """
    from scorefield.paper.results import make_page, missing_pictures

    whole = folder.resolve()
    out = out or (folder.parent if folder.name == whole.name else whole.parent) / f"{whole.name}.md"
    if out.suffix != ".md":
        raise ValueError(f"the page cannot be {out.suffix or 'a folder'} (--out FILE.md)")
    if folder.is_dir():  # otherwise the error is about that folder
        prepare_file(out)
    for path in make_page(folder, out):
        print(path)
    if missing := missing_pictures(out):
        say(f"warning: pictures that the page shows are missing: {', '.join(missing)} (make their reports again)")
