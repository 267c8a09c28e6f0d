"""Small model files to share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from guidable import guidable_file
from safetensors import safe_open

from models.small_models import RECIPE, model, weights
from scorefield import AdamsBashforth, Heun
from scorefield.cli import main
from scorefield.data.named import short_name
from scorefield.models.export import export
from scorefield.models.model import Model, load, save_model


def relative_change(a: Model, b: Model) -> float:
    """Of the scores at every level."""
    x = torch.rand(4, 1, 16, 16)
    one, two = (torch.stack([each.score(x, torch.tensor(sigma)) for sigma in a.sigmas]) for each in (a, b))
    return ((one - two).norm() / one.norm()).item()


def test_an_export_is_small_and_computes_the_same(tmp_path: Path) -> None:
    source = model(tmp_path / "whole.safetensors")
    made = export(source, tmp_path / "small.safetensors")
    before, after = load(source), load(tmp_path / "small.safetensors")
    assert made.held == after.held == (after.weights,) == ("ema",)
    assert made.size == (tmp_path / "small.safetensors").stat().st_size
    assert after.metadata["stored"] == "float16"
    assert (after.step, after.shape, after.recipe) == (7, (1, 16, 16), replace(RECIPE, data="photos"))
    assert after.sigmas == before.sigmas
    assert (after.sampler, after.labels) == (before.sampler, before.labels)
    assert 0 < relative_change(before, after) < 2e-3
    assert 1e-5 < made.change < 2**-11  # float16 rounds by at most 2⁻¹¹ of a value
    with safe_open(tmp_path / "small.safetensors", framework="pt") as file:
        types = {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert {name for name, kind in types.items() if kind != torch.float16} == {"ema/sigmas"}
    with pytest.raises(ValueError, match="holds ema weights; got weights=raw"):
        load(tmp_path / "small.safetensors", weights="raw")


def test_the_change_is_the_largest_over_all_tensors(tmp_path: Path) -> None:
    raw = {name: torch.ones_like(value) for name, value in weights(1).items()}
    raw["sigmas"] = weights(1)["sigmas"]
    raw["begin.bias"] = torch.full_like(raw["begin.bias"], 1 + 2**-11)  # half way to the next number: rounds to 1
    made = export(model(tmp_path / "m.safetensors", ema=False, raw=raw), tmp_path / "e.safetensors")
    assert made.change == pytest.approx(2**-11 / (1 + 2**-11))


def test_the_weights_and_the_precision_can_be_chosen(tmp_path: Path) -> None:
    source = model(tmp_path / "whole.safetensors")
    for number, kind in enumerate(("raw", "ema")):
        out = tmp_path / f"{kind}.safetensors"
        made = export(source, out, weights=kind, precision="float32")
        assert made.change == 0
        state = load(out).network.state_dict()
        assert all(torch.equal(state[name], value) for name, value in weights(number + 1).items())
    export(source, tmp_path / "both.safetensors", weights="both")
    both = load(tmp_path / "both.safetensors")
    assert (both.held, both.weights) == (("raw", "ema"), "ema")
    one = model(tmp_path / "one.safetensors", ema=False)
    export(one, tmp_path / "one_small.safetensors")
    assert load(tmp_path / "one_small.safetensors").held == ("raw",)
    for kind in ("ema", "both"):
        with pytest.raises(ValueError, match=f"holds raw weights; got weights={kind}"):
            export(one, tmp_path / "none.safetensors", weights=kind)
    assert not (tmp_path / "none.safetensors").exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [(7e4, r"end.weight holds 70000, and the largest float16 number is 65504"), (float("inf"), "not finite")],
)
def test_what_float16_cannot_hold_is_refused(value: float, words: str, tmp_path: Path) -> None:
    raw = weights(1)
    raw["end.weight"] = raw["end.weight"].clone()
    raw["end.weight"][0, 1, 2, 0] = value
    source = model(tmp_path / "large.safetensors", ema=False, raw=raw)
    with pytest.raises(ValueError, match=words):
        export(source, tmp_path / "e.safetensors")
    assert not (tmp_path / "e.safetensors").exists()


def test_counters_and_labels_stay_as_they_are(tmp_path: Path) -> None:
    """float16 cannot count beyond 2048 without gaps."""
    raw = weights(1) | {"batches": torch.tensor(65_537)}
    save_model(tmp_path / "m.safetensors", raw, None, recipe=RECIPE, shape=(1, 16, 16), step=1, labels=("a", "b"))
    export(tmp_path / "m.safetensors", tmp_path / "e.safetensors")
    with safe_open(tmp_path / "e.safetensors", framework="pt") as file:
        assert file.get_tensor("raw/batches") == 65_537
        assert json.loads(file.metadata()["labels"]) == ["a", "b"]


def test_no_path_of_the_machine_is_left(tmp_path: Path) -> None:
    export(model(tmp_path / "whole.safetensors"), tmp_path / "small.safetensors")
    assert b"somebody" not in (tmp_path / "small.safetensors").read_bytes()
    assert load(tmp_path / "small.safetensors").metadata["data"] == "photos"
    names = {"mnist": "mnist", "mnist:test": "mnist:test", "my_images": "my_images", "~/a/b.npy": "b.npy"}
    names |= {r"C:\Users\me\faces": "faces", "/data/mnist": "./mnist", "a/cifar10:test/": "./cifar10:test"}
    assert {source: short_name(source) for source in names} == names


def test_export_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = str(model(tmp_path / "m.safetensors")), str(tmp_path / "new" / "e.safetensors")
    main(["export", source, "--out", out, "--weights", "raw"])
    told = capsys.readouterr()
    assert told.out.strip() == out
    assert f"raw weights in float16, {Path(out).stat().st_size / 1e6:.2f} MB" in told.err
    assert "of its norm" in told.err
    main(["info", out, "--json"])
    assert json.loads(capsys.readouterr().out)["weights"] == ["raw"]
    main(["info", out])
    assert "raw, stored in float16" in capsys.readouterr().out
    for arguments, words in (
        (["--out", out], "exists already"),
        (["--out", str(tmp_path / "e.pt")], "FILE.safetensors"),
        ([], "--out"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["export", source, *arguments])
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err


def test_an_export_may_have_another_default_sampler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = str(guidable_file(tmp_path / "m.safetensors")), str(tmp_path / "e.safetensors")
    main(["export", source, "--out", out, "--sampler", "adams_bashforth", "--calls", "7"])
    sampler = load(out).sampler
    assert (type(sampler), sampler.calls) == (AdamsBashforth, 7)
    assert load(source).sampler.calls == 3
    other = str(tmp_path / "f.safetensors")
    main(["export", source, "--out", other, "--calls", "5"])
    assert (type(load(other).sampler), load(other).sampler.calls) == (Heun, 5)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["export", source, "--out", str(tmp_path / "g.safetensors"), "--calls", "0"])
    assert stopped.value.code == 2
    assert "calls" in capsys.readouterr().err
    assert not (tmp_path / "g.safetensors").exists()
