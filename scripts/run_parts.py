"""Carry a training run to another machine in parts, where only small files can be copied.

    python scripts/run_parts.py split runs/x parts                        # parts/000, 001, ... and parts/parts.json
    python scripts/run_parts.py split runs/x parts --first 8 --count 8    # only some of them
    python scripts/run_parts.py join parts runs/x                         # on the other machine

There `scorefield train NAME --resume --out runs/x` goes on.

All that a resumed run needs is taken: the newest checkpoint with its optimizer, the settings, and the logs. Parts may
arrive in any order. `join` checks them, and says which are missing or damaged; it replaces no other run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

MIB = 2**20
MANIFEST = "parts.json"


def files_of(run: Path) -> list[Path]:
    """The newest checkpoint, and everything that is no checkpoint and no sample."""
    models = sorted((run / "checkpoints").glob("model-*.safetensors"))
    if not models:
        raise SystemExit(f"{run} has no checkpoint")
    newest = [models[-1], models[-1].with_name(models[-1].name.replace("model", "optimizer"))]
    others = (
        path for path in sorted(run.rglob("*")) if path.relative_to(run).parts[0] not in ("checkpoints", "samples")
    )
    return [path for path in (*newest, *others) if path.is_file()]


def pieces(files: list[Path], size: int) -> Iterator[bytes]:
    """The files one after another, cut into pieces of this size."""
    room = bytearray()
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(size - len(room)):
                room += chunk
                if len(room) == size:
                    yield bytes(room)
                    room.clear()
    if room:
        yield bytes(room)


def split(run: Path, parts: Path, *, size: int, first: int = 0, count: int | None = None) -> int:
    """Write the parts from the first on, and the manifest of all. Returns how many parts there are."""
    files, digests = files_of(run), list[str]()
    parts.mkdir(parents=True, exist_ok=True)
    for k, piece in enumerate(pieces(files, size)):
        digests.append(hashlib.sha256(piece).hexdigest())
        if k >= first and (count is None or k < first + count):
            (parts / f"{k:03d}").write_bytes(piece)
    sizes = {path.relative_to(run).as_posix(): path.stat().st_size for path in files}
    (parts / MANIFEST).write_text(json.dumps({"files": sizes, "parts": digests}, indent=1) + "\n")
    return len(digests)


def join(parts: Path, run: Path) -> None:
    """Write the run's files. An error if a part is missing or damaged, or if there is another run in the folder."""
    manifest = json.loads((parts / MANIFEST).read_text())
    bad = []
    for k, digest in enumerate(manifest["parts"]):
        path = parts / f"{k:03d}"
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            bad.append(f"{k:03d} is {'damaged' if path.is_file() else 'missing'}")
    if bad:
        raise SystemExit(f"of {len(manifest['parts'])} parts: {', '.join(bad)} (bring these again)")
    if run.exists() and any(run.iterdir()):
        raise SystemExit(f"{run} exists already (name another folder)")
    whole = iter(parts / f"{k:03d}" for k in range(len(manifest["parts"])))
    data = b""
    for name, size in manifest["files"].items():
        target = run / name
        if not target.resolve().is_relative_to(run.resolve()):
            raise SystemExit(f"{parts / MANIFEST} names a file outside of the run: {name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            while size:
                data = data or next(whole).read_bytes()
                written = file.write(data[:size])
                data, size = data[written:], size - written


def main() -> None:
    parser = argparse.ArgumentParser(description="Carry a training run to another machine in parts.")
    parser.add_argument("what", choices=("split", "join"))
    parser.add_argument("source", type=Path, help="the run to split, or the folder of parts to join")
    parser.add_argument("target", type=Path, help="the folder for the parts, or for the run")
    parser.add_argument("--size", type=float, default=15.0, help="MiB of a part (default: 15)")
    parser.add_argument("--first", type=int, default=0, help="the first part to write (default: 0)")
    parser.add_argument("--count", type=int, help="how many parts to write (default: all)")
    options = parser.parse_args()
    if options.what == "join":
        join(options.source, options.target)
        print(options.target)
        return
    if not options.size > 0:
        sys.exit(f"--size must be positive; got {options.size:g}")
    size = max(1, int(options.size * MIB))
    n = split(options.source, options.target, size=size, first=options.first, count=options.count)
    print(f"{options.target}: {n} parts in all")


if __name__ == "__main__":
    main()
