"""The paper's figures and tables, one file each. All have the paper's settings as default."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from scorefield.paper import fig1, fig2, fig3
from scorefield.paper.output import Result
from scorefield.progress import Track


class Make(Protocol):
    """Writes out/NAME.png and out/NAME.json. `quick`: a smaller version, in under 20 s on two cores."""

    def __call__(self, out: Path, *, quick: bool = ..., seed: int = ..., track: Track[Any] = ...) -> Result: ...


FIGURES: dict[str, Make] = {"fig3": fig3.make, "fig2": fig2.make, "fig1": fig1.make}
"""The quickest first."""
