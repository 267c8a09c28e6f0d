"""Damage to files: each function takes the bytes of a whole file and returns those of a damaged one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

HEAD = 160
"""Half of the damage goes into this many bytes at either end, where formats keep their sizes."""
BLOWN = [2**16 - 1, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1, 0]
"""What sizes are replaced by."""
ODD_WORDS = ["NaN", "-Infinity", "1e999", "-1", "0", "9" * 400, "9" * 5000, "1e-320", "null", "true", '"x"', '""', "[]",
             "{}", "[[[]]]", '"\\ud800"', "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, "1.5", '"../.."',
             "[1, 2]", '"\\u0000"', "1000000000000"]  # fmt: skip
"""JSON values that a file's own are replaced by."""

Damage = Callable[[bytes, Random], bytes]


def _place(content: bytes, random: Random) -> int:
    n = max(1, len(content))
    inner = [random.randrange(n), random.randrange(min(HEAD, n)), random.randrange(min(HEAD, n))]
    return random.choice([*inner, n - 1 - inner[1]])


def cut_short(content: bytes, random: Random) -> bytes:
    return content[: _place(content, random)]


def flip_bits(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 8, 64])):
        changed[_place(content, random)] ^= 1 << random.randrange(8)
    return bytes(changed)


def blow_up_a_size(content: bytes, random: Random) -> bytes:
    place, size = _place(content, random), random.choice([2, 4, 8])
    number = random.choice(BLOWN) % 2 ** (8 * size)
    return content[:place] + number.to_bytes(size, random.choice(["little", "big"])) + content[place + size :]


def blow_up_a_number(content: bytes, random: Random) -> bytes:
    """The same for a number in letters, as in the headers of .npy and .safetensors files."""
    digits = [k for k in range(min(len(content), 4096)) if 48 <= content[k] <= 57]
    if not digits:
        return blow_up_a_size(content, random)
    place = random.choice(digits)
    return content[:place] + str(random.choice(BLOWN)).encode() + content[place + 1 :]


def leave_out(content: bytes, random: Random) -> bytes:
    place = _place(content, random)
    return content[:place] + content[place + random.choice([1, 2, 16, 500]) :]


def put_in(content: bytes, random: Random) -> bytes:
    place, n = _place(content, random), random.choice([1, 3, 16, 500])
    return content[:place] + random.choice([bytes(n), b"\xff" * n, random.randbytes(n)]) + content[place:]


def only_noise(content: bytes, random: Random) -> bytes:
    return random.choice([b"", b"\0", random.randbytes(40), content[:12] + random.randbytes(300), bytes(2000)])


BYTES: Sequence[Damage] = (cut_short, flip_bits, flip_bits, blow_up_a_size, blow_up_a_size, blow_up_a_number, leave_out,
                           put_in, only_noise)  # fmt: skip


def change_a_value(content: bytes, random: Random) -> bytes:
    """JSON in which a value anywhere is missing or another one, or which has one more."""
    mark = "a value that is replaced"
    root: Any = [json.loads(content)]
    here: Any = root
    while True:
        key = random.choice(list(here) if isinstance(here, dict) else range(len(here)))
        if not isinstance(here[key], (dict, list)) or not here[key] or random.random() < 0.3:
            break
        here = here[key]
    if isinstance(here, dict) and random.random() < 0.2:
        del here[key]
        if random.random() < 0.5:
            here["one more"] = mark
    else:
        here[key] = mark
    return json.dumps(root[0]).replace(json.dumps(mark), random.choice(ODD_WORDS)).encode()


def change_a_line(content: bytes, random: Random) -> bytes:
    """Text in which a line is missing, or there twice, or has an odd word in it."""
    lines = content.decode().split("\n")
    place = random.randrange(len(lines))
    words = lines[place].split(",")
    odd = ["²", "nan", "1e999", "-3", "x" * 200_000, "\0", '"', "9" * 5000, "loss_99", "loss_0", "", "1_0", "٣"]
    words[random.randrange(len(words))] = random.choice(odd)
    lines[place : place + 1] = random.choice([[], [lines[place]] * 2, [",".join(words)], [",".join(words)]])
    return "\n".join(lines).encode()
