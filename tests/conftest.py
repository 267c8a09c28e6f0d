from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from scorefield.models import pretrained

# Tensors here are small: a second thread gains nothing, and on a busy machine threads wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported: its kernels run on the CPU then, on NumPy

settings.register_profile("scorefield", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("scorefield")


@pytest.fixture(autouse=True)
def _no_downloaded_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither see the pretrained models that this machine has downloaded, nor download any."""
    monkeypatch.setattr(pretrained, "CACHE", "models-of-tests")
    monkeypatch.delenv(pretrained.VARIABLE, raising=False)


@pytest.fixture(autouse=True)
def _cpu_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is in float32 on every CPU, so that its numbers are the same. (Not in programs that tests start.)"""
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False, raising=False)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Every test starts from the same random state, so that it passes always or never."""
    torch.manual_seed(0)
    yield
    assert torch.is_grad_enabled(), "something switched gradients off and left them so"


@pytest.fixture(autouse=True, scope="session")
def _files_in_memory() -> Iterator[None]:
    """Nothing waits until its files are on the disk; programs that tests start do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
