"""Models of the Hugging Face hub: with its own package, where it is installed, and a stand-in for its server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.calls import failure

import scorefield
from models.hub_server import HubServer
from models.small_models import model
from scorefield.models import hub
from scorefield.models.card import model_card

CALLS = """
import contextlib, io, json, sys
from scorefield.cli import main
for call in json.load(sys.stdin):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(call)
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def run(server: HubServer, folder: Path, *calls: list[str], offline: bool = False) -> list[tuple[int, str, str]]:
    """Exit status, stdout and stderr of calls of the command line, in a process of its own: the hub's package reads its
    variables when it is imported."""
    settings = {"HF_ENDPOINT": server.url, "HF_HOME": str(folder / "hub"), "HF_TOKEN": "hf_made_up"}
    settings |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": str(int(offline))}
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        env=os.environ | settings,
        input=json.dumps(calls),
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_a_model_goes_to_the_hub_and_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    file, out = str(model(tmp_path / "mine.safetensors", step=12)), str(tmp_path / "small.safetensors")
    old = {"other.safetensors": Path(file).read_bytes(), "README.md": b"by hand"}
    two = {"a.safetensors": b"", "b.safetensors": b""}
    with HubServer({"bob/old": old, "bob/two": two, "bob/none": {}}).running() as server:
        uploaded, kept, info, named, renamed, several, none, missing, nobody = run(
            server,
            tmp_path,
            ["export", file, "--hub", "ann/digits", "--private"],
            ["export", file, "--hub", "bob/old", "--out", out],
            ["info", "hf:ann/digits"],
            ["info", "hf:ann/digits/model.safetensors", "--json"],
            ["info", "hf:bob/old/other.safetensors"],
            ["info", "hf:bob/two"],
            ["sample", "hf:bob/none"],
            ["info", "hf:ann/digits/other.safetensors"],
            ["info", "hf:ann/nothing"],
        )
        files = server.repositories["ann/digits"]
        assert server.private == {"ann/digits"}
        assert server.unknown == []
    assert uploaded[:2] == (0, f"{server.url}/ann/digits\n"), uploaded
    assert "with a model card, README.md\nto use it: scorefield sample hf:ann/digits\n" in uploaded[2]
    assert kept[:2] == (0, f"{out}\n{server.url}/bob/old\n"), kept
    assert "README.md is there already and stays as it is" in kept[2]
    assert (old["README.md"], old["model.safetensors"]) == (b"by hand", Path(out).read_bytes())
    assert files["model.safetensors"] == old["model.safetensors"]
    assert scorefield.load(out).step == 12
    assert files["README.md"].decode() == model_card(Path(out), "hf:ann/digits")

    assert info[0] == 0
    assert info[1].startswith("hf:ann/digits: refinenet of width 4")
    assert json.loads(named[1])["step"] == 12
    assert renamed[0] == 0
    assert "hf:bob/two holds 2 .safetensors files (name one: hf:bob/two/a.safetensors)" in several[2]
    assert "hf:bob/none holds no .safetensors file" in none[2]
    assert "there is no file hf:ann/digits/other.safetensors on the hub" in missing[2]
    assert "there is no hf:ann/nothing on the hub, or you may not see it" in nobody[2]
    assert [each[0] for each in (several, none, missing, nobody)] == [2] * 4

    cached, away = run(server, tmp_path, ["info", "hf:ann/digits"], ["info", "hf:ann/nothing"], offline=True)
    assert cached == info
    assert (away[0], "hf:ann/nothing is not in the hub's cache on this machine" in away[2]) == (2, True), away


def test_a_card_says_what_the_file_says(tmp_path: Path) -> None:
    card = model_card(model(tmp_path / "mine.safetensors", step=1200), "hf:ann/digits")
    for line in (
        "# digits",
        "scorefield sample hf:ann/digits -n 16 --out samples.png",
        'model = sf.load("hf:ann/digits")',
        "images = model.sample(16, seed=0)  # (16, 1, 16, 16), floats in [0, 1]",
        "| Network | refinenet of width 4, 0.03 M parameters |",
        "| Noise levels | 3 levels, σ = 0.5 ... 0.01 |",
        "| Training | 1,200 steps of 128 images by denoising score matching |",
        "| Weights | raw and ema, stored in float32 |",
        "| Default sampler | annealed_langevin |",
    ):
        assert line in card.splitlines(), card


def test_names_of_the_hub(capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.parse("hf:ann/digits") == ("ann/digits", None)
    assert hub.parse("hf:ann/digits/old/model-1.safetensors") == ("ann/digits", "old/model-1.safetensors")
    for name in ("hf:", "hf:ann", "hf:ann/", "hf:/digits", "hf:ann/digits/model.bin", "hf:a nn/digits", "hf:../x"):
        with pytest.raises(ValueError, match="a model of the hub is hf:OWNER/NAME or hf:OWNER"):
            hub.parse(name)
        assert failure(capsys, "sample", name)[0] == 2


def test_without_the_package_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    file = model(tmp_path / "mine.safetensors")
    for call in (["info", "hf:ann/digits"], ["export", file, "--hub", "ann/digits"]):
        code, said = failure(capsys, *call)
        assert (code, "pip install 'scorefield[hub]'" in said) == (1, True), said


def test_an_export_says_where_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = model(tmp_path / "mine.safetensors"), tmp_path / "x.safetensors"
    for call, why in (
        ([], "say where the model shall go"),
        (["--out", out, "--private"], "--private is for a repository of the hub"),
        (["--hub", "ann"], "a model of the hub is hf:OWNER/NAME"),
        (["--hub", "ann/digits/x.safetensors"], "a repository of the hub is OWNER/NAME; got ann/digits/x.safetensors"),
    ):
        code, said = failure(capsys, "export", file, *call)
        assert (code, why in said) == (2, True), said
    assert not out.exists()
