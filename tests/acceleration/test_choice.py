"""Where the fast path is chosen, without a GPU: stand-ins say that there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from scorefield import acceleration
from scorefield.acceleration import kernels
from scorefield.acceleration.kernels import _work
from scorefield.networks import MLP, RefineNet, UNet

PHILOX = "scorefield.acceleration.kernels.philox"


class TestWhetherTheKernelsRun:
    """They are tried once, with the smallest one. Where Triton fails the plain network serves, with a warning."""

    @pytest.fixture(autouse=True)
    def _with_triton_and_an_h200(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(kernels, "find_spec", lambda name: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
        monkeypatch.setitem(sys.modules, PHILOX, self.philox())
        _work.cache_clear()
        yield
        _work.cache_clear()

    def philox(self, error: Exception | None = None) -> ModuleType:
        """A module whose kernel runs, or does not."""

        def keys(seed: int, step: int, places: range, device: torch.device) -> None:
            if error is not None:
                raise error

        module = ModuleType(PHILOX)
        module.keys = keys  # type: ignore[attr-defined]
        return module

    def test_they_do(self) -> None:
        assert _work(0)

    def test_not_on_old_gpus_nor_without_triton(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        assert not _work(0)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
        assert _work(1)
        monkeypatch.setattr(kernels, "find_spec", lambda name: None)
        assert not _work(2)

    def test_not_where_triton_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, PHILOX, self.philox(RuntimeError("no C compiler")))
        with pytest.warns(UserWarning, match=r"do not run here, so the plain network is used: no C compiler"):
            assert not _work(0)
        monkeypatch.setitem(sys.modules, "triton", None)  # an import of it fails then
        with pytest.warns(UserWarning, match="the plain network is used: .*triton"):
            assert not _work(1)

    def test_an_error_in_our_own_kernels_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It must not switch the fast path off, unnoticed."""
        monkeypatch.setitem(sys.modules, PHILOX, None)
        with pytest.raises(ImportError):
            _work(0)

    @pytest.mark.parametrize(
        ("cuda", "version", "plain", "current", "expected"),
        [
            (True, "13.0", "", 1, True),
            (False, "13.0", "", 1, False),  # on a CPU
            (True, None, "", 1, False),  # an AMD GPU
            (True, "13.0", "1", 1, False),  # switched off
            (True, "13.0", "", 0, False),  # not the current GPU
        ],
    )
    def test_usable(
        self, cuda: bool, version: str | None, plain: str, current: int, expected: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.version, "cuda", version)
        monkeypatch.setenv("SCOREFIELD_PLAIN", plain)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
        x: Any = SimpleNamespace(is_cuda=cuda, device=SimpleNamespace(index=1))
        assert kernels.usable(x) is expected


class TestForSampling:
    """What samples a network on a GPU. Recordings and fused networks are replaced by what they were asked for."""

    @pytest.fixture(autouse=True)
    def _on_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(acceleration, "device_of", lambda network: torch.device("cuda", 0))
        monkeypatch.setattr(kernels, "usable", lambda x: True)
        monkeypatch.setattr(acceleration, "fused", lambda network, dtype=torch.float16: (network, dtype))
        monkeypatch.setattr(acceleration, "Recorded", lambda score, shape, **options: (score, shape, options))

    def test_a_network_with_fused_kernels_is_recorded_in_float16_with_bfloat16_to_fall_back_on(self) -> None:
        network: Any = RefineNet(channels=1, width=2, sigmas=[1.0, 0.1])
        asked: Any = acceleration.for_sampling(network, (1, 8, 8), size=5)
        score, shape, options = asked
        assert score == (network, torch.float16)
        assert shape == (1, 8, 8)
        assert (options["size"], options["device"]) == (5, torch.device("cuda", 0))
        assert options["fallback"]() == (network, torch.bfloat16)
        assert torch.equal(options["probe"], network.sigmas)
        with pytest.raises(ValueError, match="knows the noise levels"):
            options["check"](torch.tensor(0.5), torch.zeros(1, 1, 8, 8))
        assert acceleration.sampling_precision(network, "auto") == "float16"

    def test_a_network_for_a_range_is_tried_all_over_the_range(self) -> None:
        network = UNet(channels=1, width=2, stages=(1,), blocks=(1,), attention=(), sigma_range=(0.01, 100.0))
        asked: Any = acceleration.for_sampling(network, (1, 8, 8), size=5)
        score, _, options = asked
        assert score == (network, torch.float16)
        torch.testing.assert_close(options["probe"].cpu(), torch.tensor([100.0, 10.0, 1.0, 0.1, 0.01]))
        options["check"](torch.tensor(0.5), torch.zeros(1, 1, 8, 8))
        with pytest.raises(ValueError, match="accepts noise levels"):
            options["check"](torch.tensor(101.0), torch.zeros(1, 1, 8, 8))
        assert acceleration.sampling_precision(network, "auto") == "float16"
        assert not acceleration.has_fused_kernels(network.double())

    @pytest.mark.parametrize("network", [MLP(), nn.Identity()])
    def test_other_networks_and_float32_are_called_as_they_are(self, network: nn.Module) -> None:
        plain = RefineNet(channels=1, width=2, sigmas=[1.0])
        assert acceleration.for_sampling(network, (2,), size=5) is network
        assert acceleration.for_sampling(plain, (1, 8, 8), size=5, precision="float32") is plain
        assert acceleration.sampling_precision(plain, "float32") == "float32"
        assert acceleration.sampling_precision(network, "auto") == "float32"
