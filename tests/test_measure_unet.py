"""scripts/measure_unet.py: everything about a trained U-Net in one go, in pieces if need be."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from small_evaluation import dots, read_json
from small_evaluation import small as small

from scorefield.cli import main
from scorefield.models.model import load
from scorefield.paper.beyond import load_beyond
from scorefield.samplers import to_dict


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with fewer samplers and calls."""
    spec = spec_from_file_location("measure_unet", Path(__file__).parents[1] / "scripts" / "measure_unet.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "measure_unet", module)
    spec.loader.exec_module(module)
    for name, few in {
        "BEST": ("adams_bashforth", "heun"),
        "OTHERS": ("euler",),
        "CALLS": ("3",),
        "FEWER": ("2",),
    }.items():
        monkeypatch.setattr(module, name, few)
    return module


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two classes of grey images."""
    for k, pixels in enumerate(dots(40, 1)):
        folder = tmp_path / "dots" / ("cats" if k % 2 else "dogs")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{k}.png")
    return tmp_path / "dots"


@pytest.fixture
def run(data: Path, tmp_path: Path) -> str:
    """A run of three updates."""
    out = str(tmp_path / "runs" / "tiny")
    options = "--image-size None --width 4 --held-out 4 --batch-size 4 --steps 3 --previews 0 --averages 0.05 0.1"
    main(["train", "unet-tiny", "--data", str(data), *options.split(), "--device", "cpu", "--out", out])
    return out


def test_everything_is_measured_once(
    script: ModuleType,
    run: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "results" / "unet-dots"

    def measure(*more: str) -> str:
        words = [run, "--out", str(out), "--data", str(data), "-n", "30", "--few", "20", *more]
        monkeypatch.setattr(sys, "argv", ["measure_unet.py", *words])
        capsys.readouterr()
        script.main()
        return capsys.readouterr().out

    with pytest.raises(SystemExit, match=r"no time left for average_ema.json"):
        measure("--minutes", "0")
    assert "$ scorefield evaluate" in measure()
    found = load_beyond(out)
    words = [row.words for row in found.rows if row.numbers["n"] == 30]
    assert words.count("a random class each") == 2  # with the best sampler, and with 10 calls
    assert set(words) == {"a random class each", "no class", "a random class each, guidance 0.5"}
    assert (found.about["step"], found.about["images"], found.about["classes"]) == (3, 12, 2)
    assert set(found.neighbors) == {"pixel", "inception"}
    assert found.likelihood is not None
    assert np.asarray(Image.open(out / "classes.png")).std() > 0

    model = load(out / "unet-dots.safetensors")
    fids = {name: read_json(out / f"average_{name}.json")["fid"] for name in ("ema", "ema-0.1")}
    assert model.weights == min(fids, key=lambda name: float(fids[name]))
    assert found.frontier is not None
    sampler = to_dict(model.sampler)
    assert found.frontier.usual["name"] == sampler["name"]
    values = {(each.sampler, each.calls): each.value for each in found.frontier.trials}
    assert {name for name, _ in values} == {"adams_bashforth", "heun", "euler"}
    tried = {key: value for key, value in values.items() if key[0] != "euler"}  # euler is tried after the choice
    good = [key for key, value in tried.items() if value <= 1.05 * min(tried.values())]
    assert (sampler["name"], model.sampler.calls) in good
    assert model.sampler.calls == min(calls for _, calls in good)
    assert "$" not in measure()
