"""The packages, installed where there is nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.nightly
def test_an_installed_wheel_makes_digits_without_network_and_checkout() -> None:
    script = ROOT / "scripts" / "check_wheel.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all is well\n")
