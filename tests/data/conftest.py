from __future__ import annotations

from pathlib import Path

import pytest

from scorefield.data import named


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder. Nothing outside the test's own folder is read or written, and the network is not used."""
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(named, "MNIST_URL", "http://127.0.0.1:9/")
    monkeypatch.setattr(named, "CIFAR10_URL", "http://127.0.0.1:9/cifar-10-binary.tar.gz")
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for images."""
    (tmp_path / "images").mkdir()
    return tmp_path / "images"
