"""Downloads of data sets, from a server that the test starts."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import re
import socket
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_server import Quiet, serving

from data.image_files import Array, labels_of, noise
from data.official_files import idx, put_mnist, records
from scorefield.data import download, load, named


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An address, and the folder whose files it serves."""

    class Handler(Quiet, http.server.SimpleHTTPRequestHandler):
        pass

    (tmp_path / "served").mkdir()
    with serving(functools.partial(Handler, directory=str(tmp_path / "served"))) as url:
        yield f"{url}/", tmp_path / "served"


def archive(train: Array, test: Array) -> bytes:
    """CIFAR-10's archive, with a file whose path leads out of it."""
    members = {f"cifar-10-batches-bin/data_batch_{k + 1}.bin": records(train[k : k + 1]) for k in range(5)}
    members |= {"cifar-10-batches-bin/test_batch.bin": records(test), "../evil.bin": b"evil"}
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def test_mnist_is_downloaded_once_and_checked(
    server: tuple[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (url, served), told, names = server, [], named.MNIST_FILES["test"]
    digits, labels = noise(1500, 28, 28), np.arange(1500, dtype=np.uint8) % 10
    for name, array in zip(names, (digits, labels), strict=True):
        (served / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        monkeypatch.setitem(named.MNIST_SHA256, name, hashlib.sha256(idx(array)).hexdigest())
    monkeypatch.setattr(named, "MNIST_URL", url)

    def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        told.append((what, total))
        yield from items

    downloaded = load("mnist:test", track=track)
    assert told == [(f"downloading {url}{name}.gz (MiB)", size) for name, size in zip(names, (2, 1), strict=True)]
    assert sorted(path.name for path in (root / "mnist").iterdir()) == sorted(names)
    for name in names:
        (served / f"{name}.gz").unlink()
    for images in (downloaded, load("mnist:test")):
        assert np.array_equal(images.pixels[..., 0], digits)
        assert images.labels is not None
        assert np.array_equal(images.labels, labels)


def test_labels_that_cannot_be_stored_are_left_out(
    server: tuple[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images may lie in a folder that this user cannot write to."""
    _, label_file = put_mnist(root, "test", noise(3, 28, 28))
    content = label_file.read_bytes()
    label_file.unlink()
    (server[1] / f"{label_file.name}.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(named, "MNIST_URL", server[0])
    monkeypatch.setitem(named.MNIST_SHA256, label_file.name, hashlib.sha256(content).hexdigest())

    def denied(target: Path) -> None:
        raise PermissionError(13, f"could not write {target}")

    with monkeypatch.context() as patch:
        patch.setattr(named, "new_file", denied)
        images = load("mnist:test")
    assert images.labels is None
    (note,) = images.notes
    assert re.search(r"without their labels: .*could not write .*t10k-labels", note)
    assert labels_of(load("mnist:test")) == [0, 1, 2]


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"something else"), b"<html>", gzip.compress(bytes(99))[:-9], b""],
    ids=["another", "page", "cut", "empty"],
)
def test_a_download_with_another_checksum_is_not_kept(
    server: tuple[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    url, served = server
    (served / "train-images-idx3-ubyte.gz").write_bytes(content)
    monkeypatch.setattr(named, "MNIST_URL", url)
    with pytest.raises(ValueError, match=r"its sha256 is \w+, not ba891046\w+ \(try again"):
        load("mnist")
    assert not (root / "mnist").exists()


def test_cifar10_is_downloaded_and_unpacked(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = noise(5, 32, 32, 3), noise(2, 32, 32, 3, seed=1)
    (tmp_path / "c.tar.gz").write_bytes(packed := archive(train, test))
    monkeypatch.setattr(named, "CIFAR10_URL", (tmp_path / "c.tar.gz").as_uri())
    with pytest.raises(ValueError, match=r"its md5 is \w+, not c32a1d4ab5d03f1284b67883e8d87530"):
        load("cifar10:test")
    monkeypatch.setattr(named, "CIFAR10_MD5", hashlib.md5(packed).hexdigest())
    assert np.array_equal(load("cifar10:test").pixels, test)
    monkeypatch.setattr(named, "CIFAR10_URL", "http://127.0.0.1:9/")
    assert np.array_equal(load("cifar10").pixels, train)
    assert sorted(path.name for path in (root / "cifar10").iterdir()) == sorted(
        [*named.CIFAR10_FILES["train"], "test_batch.bin"]
    )
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize(("source", "file"), [("mnist", "train-images-idx3-ubyte"), ("cifar10", "data_batch_5.bin")])
def test_without_a_network_the_message_says_what_to_do(root: Path, source: str, file: str) -> None:
    with pytest.raises(FileNotFoundError) as error:
        load(source)
    for word in (file, str(root / source), "http://127.0.0.1:9/", "refused", "SCOREFIELD_DATA"):
        assert word in str(error.value)
    assert not (root / source).exists()


def test_an_address_that_is_gone(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MNIST_URL", server[0])
    with pytest.raises(FileNotFoundError, match=r"cannot be downloaded: HTTP Error 404"):
        load("mnist")


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert download.SECONDS_TO_ANSWER == 20
    monkeypatch.setattr(download, "SECONDS_TO_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        monkeypatch.setattr(named, "MNIST_URL", f"http://127.0.0.1:{silent_server.getsockname()[1]}/")
        with pytest.raises(FileNotFoundError, match="timed out"):
            load("mnist")
