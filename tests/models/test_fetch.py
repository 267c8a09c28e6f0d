"""Downloads of large files, from a server on this machine."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from models.file_server import FileServer
from scorefield.models import fetch as fetch_module
from scorefield.models.fetch import DownloadError, fetch
from scorefield.progress import silent

CONTENT = bytes(k * k % 251 for k in range(300_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def get(server: FileServer, folder: Path, *, name: str = "file") -> Path:
    return fetch(f"{server.url}/{name}", folder / "file", size=len(CONTENT), sha256=SHA256, track=silent)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_file_is_downloaded_once_with_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "PIECE", 100_000)
    told = []

    def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        pieces = list(items)
        told.append((what, total, len(pieces)))
        yield from pieces

    with FileServer(CONTENT).running() as server:
        for _ in range(2):
            path = fetch(f"{server.url}/f", tmp_path / "new" / "f", size=len(CONTENT), sha256=SHA256, track=track)
            assert path.read_bytes() == CONTENT
        assert server.asked == [("/f", None)]
        assert told == [(f"downloading {server.url}/f (MiB)", 3, 3)]
    assert names(tmp_path / "new") == ["f"]


def test_a_cut_download_asks_for_the_rest_alone(tmp_path: Path) -> None:
    with FileServer(CONTENT, cuts=[100_000, 50_000]).running() as server:
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert server.asked == [("/file", None), ("/file", "bytes=100000-"), ("/file", "bytes=150000-")]
    assert names(tmp_path) == ["file"]


def test_the_next_call_goes_on_where_one_gave_up(tmp_path: Path) -> None:
    with FileServer(CONTENT, cuts=[120_000, 0, 0, 0]).running() as server:
        with pytest.raises(DownloadError, match=r"cut again and again \(0.1 of 0.3 MB are here; give the same command"):
            get(server, tmp_path)
        assert names(tmp_path) == ["file.part"]
        server.asked.clear()
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert server.asked == [("/file", "bytes=120000-")]


def test_a_server_that_cannot_send_parts_sends_the_whole_again(tmp_path: Path) -> None:
    with FileServer(CONTENT, ranges=False, cuts=[100_000]).running() as server:
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert [asked for _, asked in server.asked] == [None, "bytes=100000-"]
    with FileServer(CONTENT, ranges=False, cuts=[100_000] * 9).running() as server:
        with pytest.raises(DownloadError, match="cut again and again"):
            get(server, tmp_path / "other")
        assert len(server.asked) == 4


@pytest.mark.parametrize("length", [True, False])
def test_a_file_with_another_checksum_is_refused_and_removed(tmp_path: Path, length: bool) -> None:
    digest = hashlib.sha256(zeros := bytes(len(CONTENT))).hexdigest()
    why = rf"did not give the file expected: its sha256 is {digest}, not {SHA256} \(it was removed"
    with FileServer(zeros, length=length).running() as server, pytest.raises(DownloadError, match=why):
        get(server, tmp_path)
    assert names(tmp_path) == []


def test_a_file_of_another_size_is_refused_before_it_is_read(tmp_path: Path) -> None:
    why = "not the file expected: it has 26 bytes, not 300,000"
    with FileServer(b"<html>please log in</html>").running() as server, pytest.raises(DownloadError, match=why):
        get(server, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("part", [bytes(1000), bytes(len(CONTENT)), CONTENT + b"more"], ids=["short", "same", "long"])
def test_a_part_of_another_file_costs_a_download_and_nothing_else(tmp_path: Path, part: bytes) -> None:
    (tmp_path / "file.part").write_bytes(part)
    with FileServer(CONTENT).running() as server:
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert server.asked[-1] == ("/file", None)


def test_a_file_that_shrank_on_the_server_is_asked_for_anew(tmp_path: Path) -> None:
    """Which is answered by 416: there is no such part of it."""
    (tmp_path / "file.part").write_bytes(bytes(1000))
    small = CONTENT[:500]
    with FileServer(small).running() as server:
        with pytest.raises(DownloadError, match="it has 500 bytes, not 300,000"):
            get(server, tmp_path)
        assert [asked for _, asked in server.asked] == ["bytes=1000-", None]


def test_without_a_network_or_a_file_the_error_says_so(tmp_path: Path) -> None:
    why = r"/missing cannot be downloaded: HTTP Error 404: Not Found$"
    with FileServer(CONTENT).running() as server, pytest.raises(DownloadError, match=why):
        get(server, tmp_path, name="missing")
    with pytest.raises(DownloadError, match=r"/file cannot be downloaded: .*refused"):
        get(server, tmp_path)
    assert names(tmp_path) == []


def test_a_file_address_serves_as_well(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(CONTENT)
    (tmp_path / "file.part").write_bytes(CONTENT[:99])
    server = FileServer(CONTENT, url=tmp_path.as_uri())
    assert get(server, tmp_path, name="there").read_bytes() == CONTENT


def test_two_processes_download_a_file_once(tmp_path: Path) -> None:
    """The first has the lock while the server keeps it waiting."""
    with FileServer(CONTENT, seconds=1.0).running() as server:
        target = str(tmp_path / "file")
        code = (
            "from pathlib import Path\n"
            "from scorefield.models.fetch import fetch\n"
            "from scorefield.progress import silent\n"
            f"fetch({f'{server.url}/file'!r}, Path({target!r}), size={len(CONTENT)}, sha256={SHA256!r}, track=silent)\n"
        )
        both = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(2)]
        said = "".join(process.communicate(timeout=60)[1] for process in both)
        assert [process.returncode for process in both] == [0, 0], said
        assert server.asked == [("/file", None)]
    assert (tmp_path / "file").read_bytes() == CONTENT
