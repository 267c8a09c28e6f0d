"""The command line as a user calls it: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def scorefield(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scorefield", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_progress_goes_to_stderr_as_plain_lines(tmp_path: Path) -> None:
    done = scorefield("figure", "fig3", "--quick", cwd=tmp_path)
    assert "annealed Langevin dynamics: 1000 of 1000" in done.stderr
    assert "1000 of 1000" not in done.stdout
    assert "\x1b" not in done.stderr


def test_figure_prints_the_path_of_its_picture(tmp_path: Path) -> None:
    done = scorefield("figure", "fig3", "--quick", "--seed", "3", "--out", "pictures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(Path("pictures") / "fig3.png")
    assert json.loads((tmp_path / "pictures" / "fig3.json").read_text())["seed"] == 3


@pytest.mark.parametrize("arguments", [["--help"], [], ["demo", "--help"], ["figure", "--help"]])
def test_help(arguments: list[str], tmp_path: Path) -> None:
    done = scorefield(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert "demo" in done.stdout if len(arguments) < 2 else "Example: scorefield" in done.stdout


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
    done = scorefield(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = scorefield("figure", "fig3", "--quick", "--out", "taken", cwd=tmp_path)
    assert done.returncode == 1
    assert "taken" in done.stderr
    assert "--out" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "taken").read_text() == "a file"


def test_bench_on_a_cpu(tmp_path: Path) -> None:
    """The numbers are consistent with each other."""
    done = scorefield("bench", "mnist", "--device", "cpu", "--json", "bench.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["gflop_per_image"] == pytest.approx(3.76 / 16, rel=0.02)  # a quarter of the paper's width
    for path in found["paths"].values():
        assert path["train_images_per_second"] == pytest.approx(8 / path["train_ms"] * 1e3)
        assert path["train_tflops"] == pytest.approx(3 * 8 * found["gflop_per_image"] / path["train_ms"])
        assert path["train_share"] == pytest.approx(path["train_tflops"] / found["peak_tflops"])
        assert path["sample_ms"].keys() == {"8"}
    assert "TFLOP/s" in done.stdout


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m scorefield info mnist-small | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Broken pipe" not in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_fast(tmp_path: Path) -> None:
    """Processor time, which does not depend on what else the machine does; 0.3 s on the machine that wrote this."""
    code = "import resource; from scorefield.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "use = resource.getrusage(resource.RUSAGE_SELF); print('seconds', use.ru_utime + use.ru_stime)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert float(done.stdout.split("seconds")[-1]) < 1.0
