"""Messages to stderr, and output where the terminal or the pipe cannot show every character."""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper

_WORDS = 'x - - * +- sqrt >= ~ -> ^2 ^3 ^4 ^6 _1 _2 ^T 1/2 epsilon sigma sum " " \' ... -'
PLAIN = dict(zip("×−–·±√≥≈→²³⁴⁶₁₂ᵀ½εσΣ“”’…•", _WORDS.split(), strict=True))
"""What stands for characters that an encoding such as ASCII does not have."""


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    """The characters that cannot be encoded as `PLAIN` has them; any others as Python writes them, as in \\xe9."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(each) or each.encode("ascii", "backslashreplace").decode() for each in text), error.end


def show_all_characters() -> None:
    """Let stdout and stderr take any text, whatever their encoding."""
    codecs.register_error("scorefield", _in_plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="scorefield")


def say(line: str) -> None:
    """Print a message to stderr: stdout holds results only."""
    print(line, file=sys.stderr, flush=True)
