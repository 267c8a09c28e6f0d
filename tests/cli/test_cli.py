"""The command line as a user calls it: in a process of its own."""

from __future__ import annotations

import codecs
import io
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import pytest
import torch
from forked import command_line

from cli.calls import failure
from scorefield import cli
from scorefield.cli import app, main, streams
from scorefield.training import bench
from scorefield.training.bench import Sizes


def scorefield(*arguments: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scorefield", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_figure_prints_the_path_of_its_picture_and_progress_goes_to_stderr_as_plain_lines(tmp_path: Path) -> None:
    program = command_line("figure", "fig3", "--quick", "--seed", "3", "--out", "pictures", folder=tmp_path)
    stdout, stderr = program.communicate()
    assert program.returncode == 0, stderr
    assert stdout.strip() == str(Path("pictures") / "fig3.png")
    assert json.loads((tmp_path / "pictures" / "fig3.json").read_text())["seed"] == 3
    assert "annealed Langevin dynamics: 1000 of 1000" in stderr
    assert "\x1b" not in stderr


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_lists_every_command_in_its_group_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        "start here:",
        "use a model:",
        "train:",
        "measure:",
        "the paper:",
    ]
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert len(listed) == len(set(listed)) == 22
    assert max(map(len, lines)) < 90
    for name in listed:
        import_module(f"scorefield.cli.{cli.MODULES[name]}")
    assert app.FUNCTIONS.keys() == set(listed)


@pytest.mark.parametrize("name", [*cli.MODULES, "train mnist", "train tiny"])
def test_the_help_of_a_command_has_an_example_and_no_values_of_python(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*name.split(), "--help"])
    assert not end.value.code
    said = capsys.readouterr().out
    assert said.startswith(f"usage: scorefield {name} ")
    assert "Example: scorefield" in said or " " in name
    for odd in ("{None", "None}", "default: None", "default: True", "default: False", "default: )", "default: inf"):
        assert odd not in said


def test_switches_say_on_or_off_and_optional_values_their_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["neighbors", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--flips, --no-flips Whether an image and its mirror image count as the same. (default: on)" in said
    assert "--steps INT annealed_langevin: T, the number" in said
    assert "--weights STR Raw weights (raw), their moving average (ema)" in said
    assert (
        "--space {pixel,inception} Measure distances between pixels or between Inception features. (default: pixel)"
        in said
    )
    with pytest.raises(SystemExit):
        main(["train", "tiny", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--image-size INT|INT INT Resize" in said
    assert "(default: 16)" in said
    assert "unless --steps is given. (default: no limit)" in said


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("smaple", "there is no command 'smaple' (did you mean sample? "),
        ("Sample", "there is no command 'Sample' (did you mean sample? "),
        ("evalute", "there is no command 'evalute' (did you mean evaluate? "),
        ("neighbours", "there is no command 'neighbours' (did you mean neighbors? "),
        ("xyzzy", "there is no command 'xyzzy' ("),
        ("--device", "the first word must be a command; got --device ("),
    ],
)
def test_an_unknown_command_is_told_the_nearest(word: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, word) == (2, f"scorefield: {answer}scorefield --help lists the commands)\n")


def test_a_terminal_without_all_characters(tmp_path: Path) -> None:
    """ASCII has no ×, no σ and no é; stdout and stderr show what comes nearest."""
    done = scorefield("info", "mnist-small", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 x 28 x 28" in done.stdout
    done = scorefield("é×", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr.split(" (")[0]) == (2, "scorefield: there is no command '\\xe9x'")


def test_plain_characters_stand_for_others() -> None:
    file = io.BytesIO()
    codecs.register_error("scorefield", streams._in_plain)
    with io.TextIOWrapper(file, "ascii", errors="scorefield") as stream:
        stream.write("3 × σ² ± 0.5 − é…")
        stream.flush()
        assert file.getvalue() == rb"3 x sigma^2 +- 0.5 - \xe9..."


def test_help_does_not_wait_for_pytorch(tmp_path: Path) -> None:
    for words in ([], ["figure"], ["train"], ["train", "mnist"], ["sample"], ["report"]):
        code = (
            "import sys\n"
            "from scorefield.cli import main\n"
            "try: main(sys.argv[1:])\n"
            "finally: assert 'torch' not in sys.modules"
        )
        command = [sys.executable, "-c", code, *words, "--help"]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        assert "usage: scorefield" in done.stdout


def test_an_early_interrupt_prints_no_traceback(tmp_path: Path) -> None:
    """An interrupt while PyTorch is being imported."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "scorefield", "train", "tiny"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (130, "scorefield: interrupted\n")


def test_version(tmp_path: Path) -> None:
    assert scorefield("--version", cwd=tmp_path).stdout.startswith("scorefield 0.")


@pytest.mark.parametrize(
    "arguments",
    [["figure", "fig9"], ["figure"], ["paint"], ["figure", "fig3", "--sed", "1"], ["figure", "fig3", "--seed", "-1"]],
)
def test_a_wrong_call_exits_with_2_and_a_message(arguments: list[str], tmp_path: Path) -> None:
    program = command_line(*arguments, folder=tmp_path)
    stderr = program.communicate()[1]
    assert program.returncode == 2
    assert stderr
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    program = command_line("figure", "fig3", "--quick", "--out", "taken", folder=tmp_path)
    stderr = program.communicate()[1]
    assert program.returncode == 1
    assert "taken" in stderr
    assert "--out" in stderr
    assert "Traceback" not in stderr
    assert (tmp_path / "taken").read_text() == "a file"


def test_bench_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are consistent with each other."""
    monkeypatch.setattr(bench, "Sizes", lambda batch, sampling, repeats: Sizes(batch, sampling, 1))
    main(["bench", "mnist", "--device", "cpu", "--json", str(tmp_path / "bench.json")])
    said = capsys.readouterr()
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["gflop_per_image"] == pytest.approx(3.76 / 16, rel=0.02)  # a quarter of the paper's width
    for path in found["paths"].values():
        assert path["train_images_per_second"] == pytest.approx(8 / path["train_ms"] * 1e3)
        assert path["train_tflops"] == pytest.approx(3 * 8 * found["gflop_per_image"] / path["train_ms"])
        assert path["train_share"] == pytest.approx(path["train_tflops"] / found["peak_tflops"])
        assert path["sample_ms"].keys() == {"8"}
    assert "TFLOP/s" in said.out
    assert ("warning: " in said.err) == bool(found["warnings"])


def test_bench_of_a_unet_on_a_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its real width, with labels; a call takes at least as long as its convolutions."""
    monkeypatch.setattr(bench, "Sizes", lambda batch, sampling, repeats: Sizes(2, (2,), 1))
    main(["bench", "unet-mnist", "--device", "cpu", "--json", str(tmp_path / "bench.json")])
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["command"] == "scorefield bench unet-mnist --device cpu --json bench.json"
    assert found["gflop_per_image"] == pytest.approx(0.342, rel=0.01)
    assert found["paths"].keys() == {"fast", "plain"}
    one, samples = found["one_image"], found["samples"]
    assert (found["width"], one["width"], samples["n"], samples["calls"]) == (32, 32, 16, 10)
    assert one["call_ms"] > one["convolutions_ms"] > 0
    assert one["ratio"] == pytest.approx(one["call_ms"] / one["convolutions_ms"])
    said = capsys.readouterr().out
    assert f"its convolutions alone, ratio {one['ratio']:.2f}\n" in said
    assert f"16 samples in 10 calls: {samples['seconds']:.2f} s\n" in said


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m scorefield info mnist-small | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Broken pipe" not in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_fast(tmp_path: Path) -> None:
    """Processor time, which does not depend on what else the machine does; 0.07 s on the machine that wrote this."""
    code = "import resource; from scorefield.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "use = resource.getrusage(resource.RUSAGE_SELF); print('seconds', use.ru_utime + use.ru_stime)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert float(done.stdout.split("seconds")[-1]) < 0.3


@pytest.mark.parametrize(
    ("load", "cores", "warns"), [(0.4, 1, False), (0.6, 1, True), (3.9, 16, False), (4.1, 16, True)]
)
def test_a_busy_machine_is_told(load: float, cores: int, warns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(bench, "_gpu_utilisation", lambda device: 7)
    told = f"the load average is {load} on {cores} core{'' if cores == 1 else 's'}: other programs are running"
    assert bench.busy(torch.device("cpu")) == [told] * warns
    assert bench.busy(torch.device("cuda"))[-1] == "the GPU is in use by other programs (7 % of the time)"


def test_the_use_of_a_gpu_by_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nvidia-smi prints it for this GPU; 0 where there is no such program, or no number."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="aa-bb"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bench._gpu_utilisation(torch.device("cuda")) == 0
    program = tmp_path / "nvidia-smi"
    for answer, used in (("63", 63), ("[N/A]", 0)):
        program.write_text(f'#!/bin/sh\n[ "$1" = --id=GPU-aa-bb ] && echo "{answer}"\n')
        program.chmod(0o755)
        assert bench._gpu_utilisation(torch.device("cuda")) == used


def test_options_have_the_same_names_with_python_3_10() -> None:
    """Which puts Optional around the hints of options that are None by default."""
    assert app._plain(Optional[app.JsonFile]) == app._plain(app.JsonFile)  # noqa: UP045
