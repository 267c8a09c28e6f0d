"""Files that are whole or not there, and the messages where they cannot be written."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from scorefield.files import new_file
from scorefield.images import save_gif, save_npy, save_png
from scorefield.training.logs import csv_log


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "made" / "here.txt"
    with new_file(target) as file:
        file.write(b"all")
        assert not target.exists()
    assert target.read_bytes() == b"all"
    with pytest.raises(KeyboardInterrupt), new_file(target) as file:  # noqa: PT012
        file.write(b"half")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"all"
    assert list(target.parent.iterdir()) == [target]


def test_a_link_stays_one_and_what_it_points_to_is_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for content in (b"one", b"two"):  # the target is missing at first
        with new_file(tmp_path / "link") as file:
            file.write(content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "target").read_bytes() == content


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with new_file(tmp_path / "pipe") as file:
        file.write(b"all")
    reader.join(10)
    assert got == [b"all"]
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("kind", ["png", "gif", "npy", "csv"])
def test_a_full_disk_is_said_and_leaves_nothing_behind(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pixels, target = np.zeros((4, 4, 1), np.uint8), tmp_path / f"file.{kind}"
    target.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", full)
    write: dict[str, Callable[[], object]] = {
        "png": lambda: save_png(target, pixels),
        "gif": lambda: save_gif(target, [pixels, pixels + 9]),
        "npy": lambda: save_npy(target, pixels),
        "csv": lambda: csv_log(target, ["loss"], until=0),
    }
    with pytest.raises(OSError, match=rf"could not write .*file\.{kind}: No space left on device \(free some space\)"):
        write[kind]()
    assert target.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_line_of_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    log = csv_log(tmp_path / "log.csv", ["loss"], until=0)
    (tmp_path / "log.csv").unlink()
    (tmp_path / "log.csv").mkdir()
    with pytest.raises(IsADirectoryError, match=r"could not write .*log\.csv"):
        log(1, {"loss": 1.0})
