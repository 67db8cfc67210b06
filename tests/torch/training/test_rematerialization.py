"""Blocks that PyTorch computes twice: the same step as once, with less kept, in every place of a run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from shardmill import Dataset
from shardmill.infra.errors import ConfigError
from shardmill.training.models import ModelSpec
from shardmill.training.run.session import train
from shardmill.training.torch.models import build_model
from shardmill.training.torch.models.rematerialization import blocks_of, rematerialize
from shardmill.training.train import train_dataset
from tests.samples.models import torch_blocks
from tests.samples.training.torch_runs import assert_same_model, settings

SPEC = ModelSpec("tests.samples.models.torch_blocks", 3, 16, dropout=0.5)


def stepped(model: Any) -> tuple[Any, list[Any], dict[str, Any], int]:
    """Loss, gradients and state of a model after a step, and the bytes kept between its two passes."""
    kept = 0

    def keep(tensor: Any) -> Any:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    model.train()
    torch.manual_seed(1)
    images = torch.rand(4, 3, 16, 16) * 255
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(images).square().mean()
    loss.backward()
    gradients = [own.grad for own in model.parameters()]
    return loss.detach(), gradients, {name: one.clone() for name, one in model.state_dict().items()}, kept


def test_a_step_is_the_same_and_keeps_less() -> None:
    torch.manual_seed(0)
    once = torch_blocks.build(SPEC)
    twice = copy.deepcopy(once)
    assert str(rematerialize(twice)).startswith("rematerialised: the outputs of 3 blocks")
    loss, gradients, state, kept = stepped(once)
    again = stepped(copy.deepcopy(twice))  # a copy computes its own blocks
    assert all(own.grad is None for own in twice.parameters())
    torch.testing.assert_close(again[0], loss)
    torch.testing.assert_close(again[1], gradients)
    assert again[2].keys() == state.keys()
    for name, value in state.items():
        torch.testing.assert_close(again[2][name], value, msg=name)
    assert again[3] < kept / 2


@pytest.mark.parametrize(
    ("name", "num_blocks"),
    [
        ("resnet18", 8),
        ("mobilenet_v3_small", 11),
        ("efficientnet_b0", 16),
        ("convnext_tiny", 18),
        ("regnet_y_400mf", 16),
        ("densenet121", 58),
    ],
)
def test_the_blocks_of_torchvision(name: str, num_blocks: int) -> None:
    assert len(blocks_of(build_model(ModelSpec(name, 2, 64)))) == num_blocks


@pytest.mark.parametrize("name", ["small_cnn", "tests.samples.models.torch_model"])
def test_a_model_without_blocks_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="has too few blocks"):
        rematerialize(build_model(ModelSpec(name, 2, 16)))


def test_a_run_gives_the_same_model_with_one_rank_and_with_two(
    root: Path, dataset: Dataset, tmp_path: Path
) -> None:
    """With batch normalisation over both ranks, whose moments are exchanged in the second pass too."""
    more = ["model.name=tests.samples.models.torch_blocks", "optimizer.name=sgd"]
    train(settings(*more), dataset.version, tmp_path / "once")
    found = train(settings(*more, "run.rematerialize=true"), dataset.version, tmp_path / "twice")
    assert "rematerialised: the outputs of 3 blocks" in " ".join(found["notes"])
    assert_same_model(tmp_path / "twice", tmp_path / "once")
    two = settings(*more, "run.rematerialize=true", "ranks.workers=2")
    result = train_dataset("set@1", two, root=root, runs=tmp_path / "runs")
    assert result is not None
    assert result["num_replicas"] == 2
    assert_same_model(Path(result["run_dir"]), tmp_path / "once")
