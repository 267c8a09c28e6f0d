"""Damaged files of every kind that scorefield reads: each is read all the same, or refused by an error that names it.

2,000 files, the same in every run: cut short, with bits flipped, with sizes blown up, with one file's content in the
place of another's, with odd numbers and deep nesting in JSON. No other error may leave a loader, no warning, no line on
stderr, and no memory may be taken for sizes that a file only claims.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import struct
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from damage import BYTES, Damage, change_a_line, change_a_value
from data.image_files import Array
from data.official_files import idx, records
from models.small_models import RECIPE, weights
from PIL import Image, features
from torch import Tensor

from scorefield import data
from scorefield.cli import main
from scorefield.data import named
from scorefield.data.masks import make_mask
from scorefield.data.pictures import Fit, open_image
from scorefield.evaluation.digits import load_classifier
from scorefield.evaluation.features import Features, _read, _write, is_statistics_file, read_statistics
from scorefield.evaluation.inception import _read_tensors
from scorefield.evaluation.records import read_report
from scorefield.evaluation.sample_cache import SampleCache
from scorefield.metrics import Statistics
from scorefield.models import checkpoint
from scorefield.models.build import build_network, build_sampler
from scorefield.models.export import export
from scorefield.models.model import KIND, Model, load, save_model
from scorefield.models.released import from_released
from scorefield.paper.results import _figure
from scorefield.training.folder import _read_checkpoint as read_checkpoint
from scorefield.training.folder import optimizer_tensors, restore_trainer, saved_recipe
from scorefield.training.history import HELD_OUT, LOG, held_out_loss, history, last_step
from scorefield.training.logs import csv_log
from scorefield.training.trainer import Trainer, adam, score_matching
from scorefield.web.models import _read_header as read_card

HERE = Path(__file__).parent
MOST_SECONDS = 3.0
"""For one file."""
MOST_MEMORY = 400 * 2**20
"""For all files of a kind, above what was in use before."""
SMALL = np.arange(2 * 8 * 7 * 3, dtype=np.uint8).reshape(2, 8, 7, 3)
DIGITS, COLOURS = np.zeros((2, 28, 28), np.uint8), np.zeros((2, 32, 32, 3), np.uint8)


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str
    """The file's name."""
    whole: Callable[[Path], bytes]
    """The content of a whole file. The path is a folder for other files that it needs."""
    read: Callable[[Path], object]
    cases: int
    damage: tuple[Damage, ...] = tuple(BYTES)
    place: str = ""
    """The name under which it is read, where that is another one; errors must give it."""


def image(kind: str, **options: object) -> Callable[[Path], bytes]:
    def write(folder: Path) -> bytes:
        file = io.BytesIO()
        picture = Image.fromarray(SMALL[0])
        if kind == "GIF":
            options.update(save_all=True, append_images=[Image.fromarray(SMALL[1])])
        picture.save(file, format=kind, **options)
        return file.getvalue()

    return write


def array(save: Callable[..., None], **arrays: Array) -> Callable[[Path], bytes]:
    def write(folder: Path) -> bytes:
        file = io.BytesIO()
        save(file, *([SMALL] if not arrays else []), **arrays)
        return file.getvalue()

    return write


def read_image(path: Path) -> None:
    picture = open_image(path)
    assert picture.mode in ("L", "RGB")
    make_mask(str(path), Fit(size=(4, 4)), picture.size)


def read_folder(path: Path) -> None:
    for k in range(19):
        Image.fromarray(SMALL[0] + np.uint8(k)).save(path.parent / f"{k}.png")
    assert len(data.load(str(path.parent), image_size=4)) in (19, 20)


def read_array(path: Path) -> None:
    images = data.load(str(path))
    assert images.pixels.dtype == np.uint8
    int(np.asarray(images.pixels).sum())  # every page of it


def read_moments(path: Path) -> None:
    if is_statistics_file(str(path)):
        read_statistics(str(path))
    else:
        data.load(str(path))


def official(name: str, source: str) -> Callable[[Path], None]:
    """Read a file at its place among a data set's official files."""

    def read(path: Path) -> None:
        target = data.folder_of(source.partition(":")[0]) / name
        target.with_suffix("").unlink(missing_ok=True)  # of a packed file, the plain one
        target.write_bytes(path.read_bytes())
        images = data.load(source)
        assert images.pixels.dtype == np.uint8

    return read


@cache
def state() -> dict[str, Tensor]:
    return weights(1)


def model_file(folder: Path) -> bytes:
    about = {"recipe": RECIPE, "shape": (1, 8, 8), "step": 3, "labels": ("a", "b")}
    save_model(folder / "whole.safetensors", state(), None, **about)  # type: ignore[arg-type]
    return (folder / "whole.safetensors").read_bytes()


def read_model(path: Path) -> None:
    load(path)
    export(path, path.with_name("exported.safetensors"))


def header(folder: Path) -> bytes:
    model_file(folder)
    _, metadata = checkpoint.read(folder / "whole.safetensors")
    parts = {name: json.loads(metadata[name]) for name in ("recipe", "sampler", "shape", "labels", "step")}
    return json.dumps(parts).encode()


def read_header(path: Path) -> None:
    """A model file with this metadata and the right checksum, but some of the weights only, to be quick."""
    try:
        texts = {name: json.dumps(value) for name, value in json.loads(path.read_bytes()).items()}
    except (ValueError, RecursionError, AttributeError):
        texts = {"recipe": path.read_text(errors="replace")}
    model = path.with_name(f"{path.name}.safetensors")
    some = dict(list(state().items())[:5])
    checkpoint.write(model, {f"raw/{name}": value for name, value in some.items()}, {"kind": KIND, **texts})
    with suppress(checkpoint.BrokenCheckpointError):
        read_card(model)
    load(model)


@cache
def trainer() -> Trainer:
    network = build_network(RECIPE, channels=1)
    loss = score_matching(network, torch.tensor([1.0]))
    made = Trainer(network, loss, adam(network, 1e-3))
    for parameter in made.network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.optimizer.step()
    return made


def optimizer_file(folder: Path) -> bytes:
    moments = dict(list(optimizer_tensors(trainer().optimizer).items())[:8])
    checkpoint.write(folder / "whole.safetensors", moments, {"step": "3", "seconds": "1"})
    return (folder / "whole.safetensors").read_bytes()


def read_optimizer(path: Path) -> None:
    model = path.with_name(path.name.replace("optimizer-", "model-"))
    model.write_bytes(others()[-7])
    tensors, metadata, moments, _ = read_checkpoint(model)
    restore_trainer(trainer(), tensors, moments, step=int(metadata["step"]))


def released(folder: Path) -> bytes:
    return (HERE / "released" / "tiny_gray28.pth").read_bytes()


def older(folder: Path) -> bytes:
    """The same in the format of 2019."""
    state = torch.load(HERE / "released" / "tiny_gray28.pth", weights_only=True)
    torch.save(state, folder / "older.pth", _use_new_zipfile_serialization=False)
    return (folder / "older.pth").read_bytes()


def features_file(folder: Path) -> bytes:
    found = Features(Statistics(5, torch.zeros(3), torch.eye(3)), torch.zeros(5, 3))
    _write(folder / "whole.safetensors", found, data.Images(SMALL, "dots", "abc"))
    return (folder / "whole.safetensors").read_bytes()


def samples_at(folder: Path) -> SampleCache:
    """Samples of a model that makes images as small as `SMALL`."""
    found = object.__new__(SampleCache)
    found.folder, found.model = folder, SimpleNamespace(shape=(3, 8, 7))  # type: ignore[assignment]
    return found


def read_samples(path: Path) -> None:
    found = samples_at(path.parent).read(range(2))
    assert found is None or (found.shape == (2, 8, 7, 3) and found.dtype == np.uint8)


def entry(ending: str) -> Callable[[Path], bytes]:
    """A file in the cache of prepared images."""

    def write(folder: Path) -> bytes:
        np.save(folder / "a.npy", SMALL)
        data.load(str(folder / "a.npy"), image_size=4)
        (file,) = data.folder_of("cache").glob(f"*.{ending}")
        return file.read_bytes()

    return write


def read_entry(path: Path) -> None:
    np.save(path.with_name("a.npy"), SMALL)
    (file,) = data.folder_of("cache").glob(f"*{path.suffix}")
    file.write_bytes(path.read_bytes())
    assert data.load(str(path.with_name("a.npy")), image_size=4).shape == (3, 4, 4)


def log(folder: Path) -> bytes:
    rows = ["step,loss,loss@1,loss@0.1,seconds", *(f"{k},{1 / k:.6g},2,,{k / 10}" for k in range(1, 20)), ""]
    return "\n".join(rows).encode()


def old_log(folder: Path) -> bytes:
    return b"step,loss,loss_1,loss_2,loss_3,seconds\n1,2,3,4,5,6\n2,3,4,5,6,7\n"


def read_run(path: Path) -> None:
    (path.parent / "recipe.json").write_text(json.dumps(asdict(RECIPE)))
    for name in (LOG, HELD_OUT):
        path.with_name(name).write_bytes(path.read_bytes())
    model = Model(trainer().network, (1, 8, 8), build_sampler(RECIPE), recipe=RECIPE, step=12)
    found = history(path.parent, model)
    assert all(type(row[0]) is int for row in found.log.rows)
    last_step(path)
    held_out_loss(path.parent, RECIPE, step=12, weights="raw")
    csv_log(path, ["loss", "loss@1", "loss@0.1", "seconds"], until=10)


def recipe(folder: Path) -> bytes:
    return json.dumps(asdict(RECIPE), indent=2).encode()


def read_recipe(path: Path) -> None:
    (path.parent / "recipe.json").write_bytes(path.read_bytes())
    found = saved_recipe(path.parent)
    assert {name: type(value) for name, value in asdict(found).items() if value is not None}


def report(folder: Path) -> bytes:
    return (HERE.parent / "docs" / "results" / "cifar10-raw" / "report.json").read_bytes()


def figure(folder: Path) -> bytes:
    return (HERE.parent / "docs" / "results" / "figures" / "fig2.json").read_bytes()


JSON = (*BYTES, *[change_a_value] * 12)
LINES = (*BYTES, *[change_a_line] * 9)
STATISTICS = {"mu": np.zeros(3), "sigma": np.eye(3), "n": np.array(5)}
LABELLED = {"images": SMALL, "labels": np.array([0, 1]), "classes": np.array(["a", "b"])}
WEBP = [Kind("a.webp", image("WEBP", lossless=True), read_image, 80)] if features.check("webp") else []
KINDS = [
    Kind("a.png", image("PNG"), read_image, 120),
    Kind("a.jpg", image("JPEG"), read_image, 90),
    Kind("a.gif", image("GIF"), read_image, 90),
    Kind("a.tif", image("TIFF"), read_image, 120),
    Kind("a.tiff", image("TIFF", compression="tiff_lzw"), read_image, 90),
    Kind("a.bmp", image("BMP"), read_image, 90),
    *WEBP,
    Kind("photo.png", image("PNG"), read_folder, 25),
    Kind("a.npy", array(np.save), read_array, 120),
    Kind("a.npz", array(np.savez, **LABELLED), read_array, 90),
    Kind("b.npz", array(np.savez_compressed, **LABELLED), read_array, 60),
    Kind("moments.npz", array(np.savez, **STATISTICS), read_moments, 80),
    Kind("images", lambda _: idx(DIGITS),
         official("t10k-images-idx3-ubyte", "mnist:test"), 60,
         place="t10k-images-idx3-ubyte"),
    Kind("labels", lambda _: idx(np.array([3, 5], np.uint8)), official("t10k-labels-idx1-ubyte", "mnist:test"), 40,
         place="t10k-labels-idx1-ubyte"),
    Kind("images.gz", lambda _: gzip.compress(idx(DIGITS), mtime=0),
         official("t10k-images-idx3-ubyte.gz", "mnist:test"), 40, place="t10k-images-idx3-ubyte.gz"),
    Kind("batch", lambda _: records(COLOURS), official("test_batch.bin", "cifar10:test"), 40,
         place="test_batch.bin"),
    Kind("partition", lambda _: b"000001.jpg 0\n000002.jpg 2\n", official("list_eval_partition.txt", "celeba:test"), 40,
         LINES, place="list_eval_partition.txt"),
    Kind("a.safetensors", model_file, read_model, 120),
    Kind("header.json", header, read_header, 80, (change_a_value,)),
    Kind("optimizer-1.safetensors", optimizer_file, read_optimizer, 30),
    Kind("features.safetensors", features_file, _read, 40),
    Kind("classifier.safetensors", model_file, load_classifier, 30),
    Kind("a.pth", released, from_released, 60),
    Kind("b.pth", older, from_released, 60),
    Kind("network.pth", older, _read_tensors, 30),
    Kind("00000000-2.npy", lambda _: array(np.save)(_), read_samples, 40),
    Kind("entry.npy", entry("npy"), read_entry, 30),
    Kind("entry.json", entry("json"), read_entry, 60, JSON),
    Kind("losses.csv", log, read_run, 90, LINES),
    Kind("old.csv", old_log, read_run, 60, LINES),
    Kind("settings.json", recipe, read_recipe, 120, JSON, place="recipe.json"),
    Kind("report.json", report, read_report, 120, JSON),
    Kind("fig2.json", figure, _figure, 60, JSON),
]  # fmt: skip
BEGINNINGS = [b"", b"\x89PNG\r\n\x1a\n", b"{}", b"[]", b"\x93NUMPY", b"PK\x03\x04", b"\xff\xd8\xff", b"II*\0", b"x\n"]


@cache
def others() -> list[bytes]:
    """Contents that belong into files of other kinds."""
    makers = [image("PNG"), image("TIFF"), array(np.save), array(np.savez, **LABELLED), model_file, optimizer_file,
              features_file, log, recipe, report, figure]  # fmt: skip
    with TemporaryDirectory() as folder:
        return BEGINNINGS + [make(Path(folder)) for make in makers]


@contextmanager
def memory() -> Iterator[Callable[[], int]]:
    """Inside, a function that tells how many bytes of memory were taken at most, on systems that count them."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        yield lambda: 0
        return

    def most() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    before = most()
    yield lambda: most() - before


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data folders with whole files, in which one at a time is damaged."""
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    monkeypatch.setattr("scorefield.data.named.MNIST_URL", "http://127.0.0.1:9/")
    monkeypatch.setattr("scorefield.data.named.CIFAR10_URL", "http://127.0.0.1:9/cifar10")
    for name in ("mnist", "cifar10", "celeba/img_align_celeba", "cache"):
        (tmp_path / "store" / name).mkdir(parents=True)
    digits = {"images-idx3": DIGITS, "labels-idx1": np.array([3, 5], np.uint8)}
    for name, values in digits.items():
        (tmp_path / "store" / "mnist" / f"t10k-{name}-ubyte").write_bytes(idx(values))
    monkeypatch.setattr(os, "fsync", lambda file: None)  # which takes most of the time
    return tmp_path


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_damaged_files_are_refused_by_name(kind: Kind, store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    random, whole, strangers = Random(kind.name), kind.whole(store), others()
    with memory() as taken:
        wrong = []
        for case in range(kind.cases):
            path = store / str(case) / kind.name
            path.parent.mkdir()
            swapped = random.random() < 0.08
            path.write_bytes(random.choice(strangers) if swapped else random.choice(kind.damage)(whole, random))
            wrong += [f"{case}: {problem}" for problem in problems(kind, path)]
        if taken() > MOST_MEMORY:
            wrong.append(f"{taken() / 2**20:.0f} MiB of memory")
    told = capfd.readouterr()
    assert (wrong, told.out, told.err) == ([], "", "")


def problems(kind: Kind, path: Path) -> Iterator[str]:
    """What is wrong with the way in which the file is read, or refused."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            kind.read(path)
        except (ValueError, OSError) as error:
            if (kind.place or kind.name) not in str(error):
                yield f"the file is not named: {type(error).__name__}: {error!s:.300}"
            if re.search("MemoryError|llocat", str(error)):
                yield f"memory: {error!s:.300}"
        except Exception as error:
            yield f"{type(error).__name__}: {error!s:.300}"
    yield from (f"warning: {each.message}" for each in caught)
    if time.process_time() - start > MOST_SECONDS:
        yield f"{time.process_time() - start:.1f} s"


def test_there_are_two_thousand() -> None:
    assert sum(kind.cases for kind in KINDS) >= 2000


# ---------------------------------------------------------------- whole files in the wrong place


@pytest.mark.parametrize("name", ["a.safetensors", "optimizer-1.safetensors", "features.safetensors", "a.pth"])
def test_checkpoints_in_the_place_of_others(name: str, store: Path) -> None:
    """All of them have the right checksum."""
    (kind,) = (kind for kind in KINDS if kind.name == name)
    for k, make in enumerate([model_file, optimizer_file, features_file, released]):
        path = damaged(store / str(k) / name, make(store))
        assert list(problems(kind, path)) == []


@pytest.mark.parametrize(
    "array", [SMALL.view(np.int8), SMALL[:1], SMALL[..., :1], SMALL[:, :7], SMALL[0], SMALL.astype(float)]
)
def test_other_arrays_in_the_place_of_samples(array: Array, store: Path) -> None:
    path = store / "00000000-2.npy"
    np.save(path, SMALL)
    found = samples_at(store).read(range(2))
    assert found is not None
    assert np.array_equal(found, SMALL)
    np.save(path, array)
    assert samples_at(store).read(range(2)) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sigma": np.eye(4)}, r"sigma is float64 of shape \(4, 4\), and must be .* shape \(3, 3\)"),
        ({"mu": np.zeros((1, 3))}, r"mu is float64 of shape \(1, 3\), and must be .* shape \(3,\)"),
        ({"mu": np.array([0, 1, np.nan])}, "mu is float64 .* must be finite"),
        ({"mu": np.array(["a", "b", "c"])}, "mu is <U1"),
        ({"n": np.array([5, 5])}, r"n is int64 of shape \(2,\), and must be .* shape \(\)"),
        ({"sigma": None}, "a mean mu, but no covariance"),
        ({"sigma": None, "cov_triu": np.zeros(5)}, r"cov_triu is .* must be .* shape \(6,\)"),
    ],
)
def test_statistics_that_do_not_go_together(changes: dict[str, Array | None], words: str, store: Path) -> None:
    path = store / "a.npz"
    arrays: dict[str, Any] = {name: array for name, array in (STATISTICS | changes).items() if array is not None}
    np.savez(path, **arrays)
    assert is_statistics_file(str(path))
    with pytest.raises(ValueError, match=rf"a.npz .*{words}"):
        read_statistics(str(path))


# ---------------------------------------------------------------- sizes that are only claimed


def test_an_archive_claims_more_than_it_holds(store: Path) -> None:
    """The header of an array of 5 TB, in its own file, in an archive, and in one whose directory claims the same."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 50, 100)})
    (store / "a.npy").write_bytes(head.getvalue())
    with zipfile.ZipFile(store / "a.npz", "w") as archive:
        archive.writestr("images.npy", head.getvalue())
    content = (store / "a.npz").read_bytes()
    size = struct.pack("<I", len(head.getvalue()))
    assert content.count(size * 2) == 2  # packed and plain, in both directories
    (store / "b.npz").write_bytes(content.replace(size * 2, size + struct.pack("<I", 2**32 - 2)))
    (store / "c.npz").write_bytes(content.replace(size * 2, struct.pack("<I", 2**32 - 2) * 2))
    words = {
        "a.npy": "mmap length|requested",
        "a.npz": r"images.npy has \d+ bytes, which are no array of \(1000000000,",
    }
    words |= dict.fromkeys(["b.npz", "c.npz"], r"images.npy cannot have 4,294,967,294 bytes in a file of \d+ ")
    for name, why in words.items():
        with pytest.raises(ValueError, match=rf"cannot read {store / name} as an array: .*({why})"):
            data.load(str(store / name))


def test_the_claims_are_counted_in_bytes(store: Path) -> None:
    """80 numbers fit into 128 bytes, but not if each has 8. Zeros are packed a thousandfold, and are read."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<u8", "fortran_order": False, "shape": (5, 4, 4)})
    with zipfile.ZipFile(store / "a.npz", "w") as archive:
        archive.writestr("images.npy", head.getvalue())
    with pytest.raises(ValueError, match=r"images.npy has 128 bytes, which are no array of \(5, 4, 4\)"):
        data.load(str(store / "a.npz"))
    np.savez_compressed(store / "b.npz", images=np.zeros((1000, 64, 64), np.uint8))
    assert len(data.load(str(store / "b.npz"))) == 1000


@pytest.mark.parametrize("height", [8, 2**22 // 7, 2**22 // 7 + 1, 10_000_000])
def test_an_image_claims_more_pixels_than_its_bytes_may_hold(height: int, store: Path) -> None:
    """A TIFF of 8 rows whose header says that there are more, which Pillow takes for black. 2²² pixels are read."""
    content = image("TIFF")(store)
    where = content.index(struct.pack("<HHII", 257, 4, 1, 8))
    (store / "a.tif").write_bytes(content[:where] + struct.pack("<HHII", 257, 4, 1, height) + content[where + 12 :])
    if 7 * height <= 2**22:
        assert open_image(store / "a.tif").size == (7, height)
    else:
        claim = f"claims to have 7 × {height:,} pixels, in {len(content)} bytes"
        with pytest.raises(ValueError, match=rf"a.tif cannot be read as an image: .*{claim}"):
            open_image(store / "a.tif")


def test_a_blank_picture_is_read(store: Path) -> None:
    """The densest that there is: eight pixels in a byte, packed a thousandfold."""
    Image.new("1", (4096, 4096)).save(store / "blank.png", optimize=True)
    assert open_image(store / "blank.png").size == (4096, 4096)


def test_a_packed_file_that_never_ends(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MOST_UNPACKED", 16 + 2 * 28 * 28)
    for name, n, fine in (("t10k-images-idx3-ubyte", 2, True), ("t10k-images-idx3-ubyte", 3, False)):
        (data.folder_of("mnist") / name).unlink(missing_ok=True)
        (data.folder_of("mnist") / f"{name}.gz").write_bytes(gzip.compress(idx(np.zeros((n, 28, 28), np.uint8))))
        if fine:
            assert len(data.load("mnist:test")) == 2
        else:
            with pytest.raises(ValueError, match=r"ubyte.gz is damaged"):
                data.load("mnist:test")


# ---------------------------------------------------------------- the command line


def damaged(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


CALLS: dict[str, tuple[str, Callable[[Path], bytes], str]] = {
    "sample": ("a.safetensors", lambda folder: model_file(folder)[:-9], "sample {} -n 1 --out {}.png"),
    "info": ("a.safetensors", lambda folder: model_file(folder).replace(b'"sha256":"', b'"sha256":"x'), "info {}"),
    "export": ("a.safetensors", optimizer_file, "export {} --out {}.e.safetensors"),
    "import": ("a.pth", lambda folder: older(folder)[:40], "import {} --out {}.safetensors"),
    "train": ("a.npy", lambda folder: array(np.save)(folder)[:-9], "train tiny --data {} --out {}-run"),
    "train on images": ("set/a.gif", lambda folder: image("GIF")(folder)[:20], "train tiny --data {}/.. --out {}-run"),
    "resume": ("run/recipe.json", lambda folder: b'{"width": "4"}', "train tiny --resume --out {}/.."),
    "inpaint": ("a.tif", lambda folder: image("TIFF")(folder)[:30], "inpaint mnist-small --image {} --out {}.png"),
    "mask": ("a.jpg", lambda folder: b"", "inpaint mnist-small --image tests/digits.png --mask {} --out {}.png"),
    "evaluate": ("a.npz", lambda folder: array(np.savez, **STATISTICS)(folder)[:90], "evaluate {} --data {} -n 4"),
    "neighbors": ("a.npy", lambda folder: model_file(folder), "neighbors {} --data {} --out {}.png"),
    "results": ("all/mine/report.json", lambda folder: b"[" * 9000, "results {}/../.. --out {}.md"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_command_line_names_the_file_in_one_line(name: str, store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, make, call = CALLS[name]
    path = damaged(store / file, make(store))
    words = call.replace("{}", str(path.parent / path.name)).split()
    words = [os.path.normpath(word) if "/.." in word else word for word in words]
    capfd.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    told = capfd.readouterr()
    (line,) = [each for each in told.err.splitlines() if not each.startswith(("note: ", "reading", "decoding"))]
    assert line.startswith("scorefield: ")
    assert path.name in line
    assert "Traceback" not in told.err
    assert told.out == ""


def test_a_run_is_resumed_before_a_checkpoint_with_the_wrong_optimizer(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    np.save(store / "a.npy", np.zeros((8, 4, 4), np.uint8))
    call = f"train tiny --data {store}/a.npy --out {store}/run --image-size None --width 2 --levels 2 --batch-size 2"
    call += " --held-out 0 --previews 0 --checkpoint-every 1 --device cpu"
    main([*call.split(), "--steps", "2"])
    folder = store / "run" / "checkpoints"
    (folder / "optimizer-00000002.safetensors").write_bytes((folder / "model-00000002.safetensors").read_bytes())
    capfd.readouterr()
    main([*call.split(), "--steps", "2", "--resume"])
    told = capfd.readouterr().err
    assert "optimizer-00000002.safetensors does not hold the optimizer of model-00000002.safetensors" in told
    assert f"resuming {store}/run at step 1" in told
