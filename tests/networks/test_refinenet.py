from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scorefield.models.released import from_released
from scorefield.networks import RefineNet
from scorefield.networks.refinenet import ChainedResidualPooling, CondInstanceNorm
from scorefield.noise import geometric

RELEASED = Path(__file__).parents[1] / "released"
SIGMAS = geometric(1.0, 0.01, 10)


@pytest.mark.parametrize("name", ["tiny_color32", "tiny_gray28"])
def test_scores_of_the_released_network(name: str) -> None:
    """An imported checkpoint gives the scores that the released code gives: the architecture, to the last detail."""
    expected = np.load(RELEASED / f"{name}.npz")
    network = from_released(RELEASED / f"{name}.pth")
    sigma = torch.tensor(expected["sigmas"][expected["level"]])
    with torch.no_grad():
        score = network(torch.tensor(expected["x"]), sigma).numpy()
    error = np.linalg.norm(score - expected["score"]) / np.linalg.norm(expected["score"])
    assert error < 1e-5


@pytest.mark.parametrize(("channels", "width", "millions"), [(3, 128, 30.12), (1, 64, 7.64)])
def test_the_papers_networks_have_the_papers_sizes(channels: int, width: int, millions: float) -> None:
    with torch.device("meta"):
        network = RefineNet(channels=channels, width=width, sigmas=SIGMAS)
    assert round(sum(p.numel() for p in network.parameters()) / 1e6, 2) == millions


def test_cond_instance_norm_by_the_formula() -> None:
    """zₖ = γ[i,k] (xₖ − μₖ)/sₖ + β[i,k] + α[i,k] (μₖ − m)/v, in NumPy, entry by entry."""
    norm = CondInstanceNorm(levels=3, channels=4).double()
    with torch.no_grad():
        norm.beta.copy_(torch.randn(3, 4))
    x, level = torch.randn(2, 4, 5, 6, dtype=torch.float64) * 3 + 1, torch.tensor([2, 0])
    result = norm(x, level).detach().numpy()
    gamma, alpha, beta = (table.detach().numpy() for table in (norm.gamma, norm.alpha, norm.beta))
    for b, i in enumerate(level.tolist()):
        image = x[b].numpy()
        mu = image.mean((1, 2))
        for k in range(4):
            s, m, v = np.sqrt(image[k].var() + 1e-5), mu.mean(), np.sqrt(mu.var(ddof=1) + 1e-5)
            expected = gamma[i, k] * (image[k] - mu[k]) / s + beta[i, k] + alpha[i, k] * (mu[k] - m) / v
            np.testing.assert_allclose(result[b, k], expected, rtol=1e-10)


def test_initial_weights_of_the_norm() -> None:
    norm = CondInstanceNorm(levels=100, channels=1000)
    for table in (norm.gamma, norm.alpha):
        assert abs(table.mean() - 1) < 1e-3
        assert abs(table.std() / 0.02 - 1) < 0.02
    assert (norm.beta == 0).all()


def test_pooling_counts_the_border() -> None:
    """With norm and convolution out of the way, two 5×5 means of a constant image lose mass at the border alone."""
    pool = ChainedResidualPooling(levels=1, channels=2)
    for k in range(2):
        torch.nn.init.dirac_(pool.convs[k].weight)  # type: ignore[arg-type]
        pool.norms[k] = _Nothing()
    result = pool(torch.ones(1, 2, 9, 9), torch.tensor([0]))
    assert result[0, 0, 4, 4] == 3
    torch.testing.assert_close(result[0, 0, 0, 4], torch.tensor(1 + 15 / 25 + (15 + 20 + 25) * 5 / 625))


class _Nothing(torch.nn.Module):
    def forward(self, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 33, 47), (3, 64, 96), (2, 7, 2), (4, 1, 1), (1, 1, 5)])
def test_any_channels_and_any_size(shape: tuple[int, int, int]) -> None:
    network = RefineNet(channels=shape[0], width=4, sigmas=SIGMAS)
    x = torch.rand(2, *shape)
    with torch.no_grad():
        score = network(x, SIGMAS[3])
        assert score.shape == x.shape
        assert score.isfinite().all()
        if shape[1] % 2 or shape[2] % 2:  # what is odd is continued by its last row and column, and cut off again
            wider = torch.nn.functional.pad(x, (0, shape[2] % 2, 0, shape[1] % 2), mode="replicate")
            assert torch.equal(score, network(wider, SIGMAS[3])[..., : shape[1], : shape[2]])


def test_sigma_chooses_the_level() -> None:
    network, x = RefineNet(channels=1, width=4, sigmas=SIGMAS), torch.rand(3, 1, 8, 8)
    sigma = SIGMAS[[0, 4, 9]]
    with torch.no_grad():
        each = network(x, sigma)
        for k in range(3):
            torch.testing.assert_close(each[k], network(x[k : k + 1], sigma[k])[0])
        assert not torch.allclose(each[0], network(x[:1], SIGMAS[1])[0])
        torch.testing.assert_close(network(x, sigma.double() * (1 + 1e-6)), each)  # rounding is no other level


def test_a_sigma_that_is_no_noise_level_is_an_error_unless_the_nearest_is_asked_for() -> None:
    network, x = RefineNet(channels=1, width=4, sigmas=SIGMAS), torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        for sigma in (0.8, 2.0, 0.0, 1.01, torch.tensor([1.0, 0.5])):
            with pytest.raises(ValueError, match=r"knows the noise levels 1, 0\.599484.*nearest=True"):
                network(x, sigma)
        torch.testing.assert_close(network(x, torch.tensor(5.0), nearest=True), network(x, torch.tensor(1.0)))
        torch.testing.assert_close(network(x, torch.tensor(0.011), nearest=True), network(x, torch.tensor(0.01)))


def test_the_network_says_which_sigmas_it_accepts() -> None:
    network, x = RefineNet(channels=1, width=4, sigmas=SIGMAS), torch.rand(2, 1, 8, 8)
    assert torch.equal(network.accepted_sigmas, SIGMAS)
    network.check_sigma(SIGMAS[[0, 9]], x)
    with pytest.raises(ValueError, match=r"knows the noise levels .*got sigma 0\.5 "):
        network.check_sigma(torch.tensor([1.0, 0.5]), x)
    assert network.options == "--width 4 --levels 10 --sigma-max 1 --sigma-min 0.01"


def test_one_level_makes_the_unconditional_network() -> None:
    network = RefineNet(channels=1, width=4, sigmas=[0.01])
    assert network.norm.gamma.shape == (1, 4)
    assert network(torch.rand(2, 1, 8, 8), 0.01).shape == (2, 1, 8, 8)


def test_every_parameter_gets_a_gradient() -> None:
    network = RefineNet(channels=2, width=4, sigmas=[1.0])
    network(torch.rand(2, 2, 10, 10), torch.tensor(1.0)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.rand(2, 3, 8, 8), r"x must have shape \(B, 1, H, W\); got \(2, 3, 8, 8\)"),
        (torch.rand(1, 8, 8), r"x must have shape \(B, 1, H, W\)"),
    ],
)
def test_wrong_images_are_refused(x: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RefineNet(channels=1, width=4, sigmas=SIGMAS)(x, torch.tensor(1.0))
