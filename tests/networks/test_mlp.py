from __future__ import annotations

import math

import pytest
import torch

from scorefield.networks import MLP


def linear_layers(network: MLP) -> list[torch.nn.Linear]:
    return [layer for layer in network.layers if isinstance(layer, torch.nn.Linear)]


def test_one_hidden_layer_by_hand() -> None:
    """With one unit, each entry of s(x) is a log(1 + exp(w·x + b)) + c."""
    network = MLP(dim=2, width=1, layers=2)
    first, second = linear_layers(network)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[2.0, -1.0]]))
        first.bias.fill_(0.5)
        second.weight.copy_(torch.tensor([[3.0], [-1.0]]))
        second.bias.copy_(torch.tensor([0.25, 0.0]))
        for x in ([0.0, 0.0], [1.0, 0.5], [-3.0, 2.0]):
            soft = math.log(1 + math.exp(2 * x[0] - x[1] + 0.5))
            found = network(torch.tensor([x]))
            torch.testing.assert_close(found, torch.tensor([[3 * soft + 0.25, -soft]]))


def test_softplus_is_between_all_layers() -> None:
    """Of the three layers of Fig. 2, in NumPy."""
    network = MLP(width=5).double()
    x = torch.randn(4, 2, dtype=torch.float64)
    h = x.numpy()
    linear = linear_layers(network)
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(2, 5), (5, 5), (5, 2)]
    for k, layer in enumerate(linear):
        h = h @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        h = h if k == 2 else torch.from_numpy(h).exp().add(1).log().numpy()
    torch.testing.assert_close(network(x, torch.tensor(1.0)).detach(), torch.from_numpy(h))


def test_vectors_of_another_length_and_too_few_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x must have shape \(B, 2\); got \(1, 3\)"):
        MLP()(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="layers must be at least 2; got 1"):
        MLP(layers=1)
