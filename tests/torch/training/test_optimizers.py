"""Optimizers of PyTorch from the settings of Keras: their state, weight decay, rates by layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from shardmill.training.config import OptimizerSettings
from shardmill.training.config.torch_settings import TORCH_OPTIMIZERS
from shardmill.training.torch.optimization import make_optimizer, prepare_state, set_rate
from shardmill.training.torch.state import optimizer_state


def network() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))


def take_steps(model: Any, optimizer: Any, count: int) -> None:
    torch.manual_seed(2)
    for _ in range(count):
        set_rate(optimizer, 0.1)
        model(torch.rand(8, 1, 4, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("name", TORCH_OPTIMIZERS)
def test_prepared_state_is_that_of_the_first_step(name: str) -> None:
    models = network(), network()
    for model in models:
        optimizer = make_optimizer(OptimizerSettings(name=name), model)
        if model is models[1]:
            prepare_state(optimizer)
            assert all(torch.equal(ours, theirs) for ours, theirs in
                       zip(model.parameters(), network().parameters(), strict=True))  # fmt: skip
            prepared = [state.shape for state in optimizer_state(optimizer)]
        take_steps(model, optimizer, 3)
    assert prepared == [state.shape for state in optimizer_state(optimizer)]
    for left, right in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(left, right)


def test_weight_decay_is_decoupled_and_leaves_biases_and_normalisation_alone() -> None:
    model = network()
    before = [own.detach().clone() for own in model.parameters()]
    optimizer = make_optimizer(OptimizerSettings(name="adamw", weight_decay=0.5), model)
    set_rate(optimizer, 0.1)
    for own in model.parameters():
        own.grad = torch.zeros_like(own)
    optimizer.step()
    shares = [0.95, 1, 1, 1, 0.95, 1]
    for own, old, share in zip(model.parameters(), before, shares, strict=True):
        torch.testing.assert_close(own, old * share)


def test_the_first_layer_learns_at_its_share_of_the_rate() -> None:
    optimizer = make_optimizer(OptimizerSettings(name="sgd", first_layer_factor=0.25), network())
    set_rate(optimizer, 0.4)
    assert sorted({group["lr"] for group in optimizer.param_groups}) == pytest.approx([0.1, 0.2, 0.4])


def test_options_have_the_names_of_keras() -> None:
    given = {"beta_1": 0.8, "epsilon": 1e-3, "amsgrad": True}
    optimizer = make_optimizer(OptimizerSettings(name="adam", options=given), network())
    defaults = optimizer.defaults
    assert (defaults["betas"], defaults["eps"], defaults["amsgrad"]) == ((0.8, 0.999), 1e-3, True)
