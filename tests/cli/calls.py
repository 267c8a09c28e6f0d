"""Calls of the command line that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from scorefield.cli import main


def failure(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """The exit status and what was printed to stderr."""
    with pytest.raises(SystemExit) as exit_:
        main([str(a) for a in arguments])
    return int(str(exit_.value.code)), capsys.readouterr().err
