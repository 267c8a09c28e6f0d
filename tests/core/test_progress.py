from __future__ import annotations

import io
import sys

import pytest

from scorefield import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(progress.track("abc", "spelling", 3)) == ["a", "b", "c"]
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert [line.split(",")[0] for line in lines[:3]] == [f"spelling: {k} of 3" for k in (1, 2, 3)]
    assert lines[3].startswith("spelling: 3 of 3, took 0 s")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert list(progress.track("abc", "spelling", 3)) == ["a", "b", "c"]
    assert "spelling" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.silent("abc", "spelling", 3)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")
