"""The README's code runs, as written and in its order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, namespace)
    printed = capsys.readouterr().out
    shares = [int(share) / 100 for share in re.findall(r"(\d+)% in the upper mode", printed)]
    assert len(shares) == 5
    assert abs(shares[-1] - 0.78) <= 0.04
    assert abs(namespace["x"][:, 1].mean() - 5) < 0.2


def test_the_readmes_pictures_are_there() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", README.read_text(encoding="utf-8"))
    assert pictures
    assert all((README.parent / picture).is_file() for picture in pictures)
