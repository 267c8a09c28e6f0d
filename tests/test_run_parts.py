"""scripts/run_parts.py: a run that was carried elsewhere in parts goes on as if it had stayed."""

from __future__ import annotations

import runpy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training.small_runs import assert_same, final, quick
from training.small_runs import recipe as recipe

from scorefield.models.recipes import Recipe

PARTS: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "run_parts.py"))


@pytest.fixture
def run(recipe: Recipe, tmp_path: Path) -> Path:
    """A run that was stopped after three of six steps."""
    quick(replace(recipe, steps=3), tmp_path / "run")
    return tmp_path / "run"


def test_a_run_in_parts_goes_on_as_if_it_had_stayed(recipe: Recipe, run: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    n = PARTS["split"](run, parts, size=700, first=0, count=2)
    assert n > 4
    with pytest.raises(SystemExit, match=f"of {n} parts: 002 is missing, 003 is missing"):
        PARTS["join"](parts, tmp_path / "there")
    assert PARTS["split"](run, parts, size=700, first=2) == n
    PARTS["join"](parts, tmp_path / "there")
    shutil.rmtree(run)
    quick(replace(recipe, steps=6), tmp_path / "there", resume=True)
    quick(replace(recipe, steps=6), tmp_path / "whole")
    assert_same(final(tmp_path / "there"), final(tmp_path / "whole"))
    logs = [(tmp_path / name / "log.csv").read_text().count("\n") for name in ("there", "whole")]
    assert logs[0] == logs[1]


def test_damaged_parts_and_other_runs_are_told(run: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    PARTS["split"](run, parts, size=900)
    with pytest.raises(SystemExit, match="run exists already"):
        PARTS["join"](parts, run)
    part = bytearray((parts / "001").read_bytes())
    part[7] ^= 1
    (parts / "001").write_bytes(part)
    with pytest.raises(SystemExit, match="001 is damaged"):
        PARTS["join"](parts, tmp_path / "there")
    with pytest.raises(SystemExit, match="has no checkpoint"):
        PARTS["split"](tmp_path / "nothing", parts, size=5000)
