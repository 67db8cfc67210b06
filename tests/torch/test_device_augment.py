"""RandAugment, MixUp and CutMix by PyTorch: TensorFlow's draws and pixels, for any number of ranks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardmill import Dataset
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.augment.kinds.rand_augment import OPS
from shardmill.training.config import AugmentSettings
from shardmill.training.torch.data import AugmentedBatch, DeviceAugment, TorchBatch, TorchLoader
from tests.samples.images.rand_augmented import SIZE, WARPS, images_of, operated
from tests.samples.training.drawn import Drawn, drawn_for_batches

ROOT = Path(__file__).parents[2]
MIXING = {"mixup": 0.5, "cutmix": 1.0, "mix_probability": 0.9}
EVERYTHING = {"randaugment": {"num_ops": 2, "magnitude": 6}, **MIXING}


def settings_of(**settings: object) -> AugmentSettings:
    return AugmentSettings.model_validate(settings)


def batch_of(num: int, channels: int = 3, dtype: Any = torch.uint8) -> TorchBatch:
    """A batch from position 100 on, of epoch 2; labels count from 0 to 6."""
    images = torch.from_numpy(images_of(num)).permute(0, 3, 1, 2)[:, :channels].to(dtype)
    rows, sizes = torch.arange(num), torch.full((num, 2), SIZE)
    return TorchBatch(images, rows % 7, torch.full((num,), 1 / num), sizes, rows, rows + 100, 2, 0)


def draws_of(settings: AugmentSettings, num: int) -> Drawn:
    """The values that numpy draws for that batch under seed 5, as for TensorFlow."""
    return drawn_for_batches(settings, 5, 2, np.arange(100, 100 + num), SIZE)


def pixels_of(found: AugmentedBatch) -> np.ndarray[Any, Any]:
    assert found.images.dtype == torch.uint8
    return found.images.permute(0, 2, 3, 1).numpy().astype(np.float64)


@pytest.mark.parametrize("magnitude", [0.0, 5.0, 10.0])
def test_operations_are_pillows(magnitude: float) -> None:
    settings = settings_of(randaugment={"num_ops": 1, "magnitude": magnitude})
    batch, draws = batch_of(112), draws_of(settings, 112)
    assert set(draws.ops[:, 0]) == set(range(len(OPS)))
    batch.images[3] = 90  # nothing to stretch or to equalise
    before = batch.images.clone()
    found = DeviceAugment(settings, seed=5)(batch)
    assert torch.equal(batch.images, before)
    for row, number in enumerate(draws.ops[:, 0]):
        name, image = OPS[number], before[row].permute(1, 2, 0).numpy()
        wanted = operated(image, name, draws.amounts[row, 0], draws.warps[row, 0])
        most = 0.51 if name in WARPS else 2.0
        assert np.abs(pixels_of(found)[row] - wanted).max() <= most, (name, row)
    assert torch.equal(found.partner_labels, batch.labels)
    assert found.own_shares.tolist() == [1.0] * 112


def test_mixed_images_are_their_formula() -> None:
    settings = settings_of(**MIXING)
    batch, draws = batch_of(64), draws_of(settings, 64)
    images = batch.images.permute(0, 2, 3, 1).numpy().astype(np.float64)
    found = DeviceAugment(settings, seed=5)(batch)
    for row in range(64):
        top, left, height, width = draws.boxes[row]
        share, partner = float(draws.blend[row]), images[row ^ 1]
        wanted = share * images[row] + (1 - share) * partner
        box = (slice(top, top + height), slice(left, left + width))
        wanted[box] = partner[box]
        assert np.abs(pixels_of(found)[row] - wanted).max() <= 0.501
    assert np.array_equal(found.own_shares.numpy(), draws.own_share)
    assert found.partner_labels.tolist() == [(row ^ 1) % 7 for row in range(64)]


def test_losses_are_those_of_soft_labels() -> None:
    found = DeviceAugment(settings_of(**MIXING), seed=5)(batch_of(64))
    logits = torch.randn(64, 7, generator=torch.Generator().manual_seed(1))
    soft = found.soft_labels(7)
    cross_entropy = torch.nn.functional.cross_entropy
    wanted = cross_entropy(logits, soft, reduction="none")
    losses = found.losses(lambda labels: cross_entropy(logits, labels, reduction="none"))
    assert torch.allclose(losses, wanted, atol=1e-6)
    assert torch.allclose(soft.sum(1), torch.ones(64))
    assert torch.equal(found.dominating_labels(), soft.argmax(1))
    assert (found.dominating_labels() != found.labels).any()


def test_grey_and_normalised_images() -> None:
    settings = settings_of(**EVERYTHING)
    augment, mixing = DeviceAugment(settings, seed=5), DeviceAugment(settings_of(**MIXING), seed=5)
    assert augment(batch_of(14, channels=1)).images.shape == (14, 1, SIZE, SIZE)
    normalised = mixing(batch_of(14, dtype=torch.float32)).images
    assert torch.equal(normalised.round().to(torch.uint8), mixing(batch_of(14)).images)
    with pytest.raises(UsageError, match=r"RandAugment needs images of uint8, and got torch\.float32"):
        augment(batch_of(14, dtype=torch.float32))


def test_all_work_is_done_on_the_device_of_the_images() -> None:
    """The device "meta" computes shapes only, and like a GPU refuses tensors of another device."""
    batch = batch_of(64)
    batch = batch._replace(images=batch.images.to("meta"))
    found = DeviceAugment(settings_of(**EVERYTHING), seed=5)(batch)
    assert {tensor.device.type for tensor in found} == {"meta"}
    assert found.images.shape == batch.images.shape
    assert found.soft_labels(7).device.type == "meta"


def loader_of(dataset: Dataset, **told: Any) -> TorchLoader:
    settings = {"batch_size": 12, "image_size": 24, "seed": 3, "num_workers": 0, "num_epochs": 1}
    return dataset.torch("train", **{**settings, "augment": settings_of(**EVERYTHING), **told})


@pytest.mark.parametrize(("num_ranks", "shares"), [(3, None), (2, (2, 1))])
def test_any_number_of_ranks_makes_the_same(
    dataset: Dataset, num_ranks: int, shares: tuple[int, ...] | None
) -> None:
    alone = loader_of(dataset)
    ranks = [loader_of(dataset, rank=rank, num_ranks=num_ranks, shares=shares) for rank in range(num_ranks)]
    for whole, *parts in zip(alone, *ranks, strict=True):
        wanted = alone.augment_on_device(whole)
        found = [rank.augment_on_device(part) for rank, part in zip(ranks, parts, strict=True)]
        for left, right in zip(zip(*found, strict=True), wanted, strict=True):
            assert torch.equal(torch.cat(left), right)
        assert not torch.equal(wanted.images, whole.images)


@pytest.mark.parametrize("settings", [MIXING, EVERYTHING])
def test_batches_are_those_of_tensorflow(
    dataset: Dataset, root: Path, tmp_path: Path, tensorflow_python: str, settings: dict[str, Any]
) -> None:
    out = tmp_path / "steps.npz"
    argv = [
        tensorflow_python,
        "-m",
        "tests.torch.tensorflow_mixed",
        str(root),
        str(out),
        json.dumps(settings),
    ]
    subprocess.run(argv, cwd=ROOT, timeout=300, check=True)
    wanted = np.load(out)
    loader = loader_of(dataset, batch_size=10, augment=settings_of(**settings))
    for batch, images, labels in zip(loader, wanted["images"], wanted["labels"], strict=False):
        found = loader.augment_on_device(batch)
        assert np.allclose(found.soft_labels(3).numpy(), labels, atol=1e-6)
        difference = np.abs(pixels_of(found) - images)
        if settings is MIXING:
            assert difference.max() <= 1
        else:  # two operations, one of which may amplify a grey level of the other
            assert difference.mean() < 1


def test_evaluation_is_left_alone(dataset: Dataset) -> None:
    loader = loader_of(dataset, training=False)
    for batch in loader:
        found = loader.augment_on_device(batch)
        assert found.images is batch.images
        assert found.own_shares.tolist() == [1.0] * 12


def test_augmentation_that_was_forgotten_is_said_once(dataset: Dataset) -> None:
    loader = loader_of(dataset, num_epochs=2)
    with pytest.warns(UserWarning, match="pass each batch to augment_on_device"):
        list(loader)
    assert len(list(loader)) == 4


@pytest.mark.parametrize(
    ("told", "error", "message"),
    [
        ({"batch_size": 9}, ConfigError, "a device takes 9 of each batch"),
        ({"rank": 0, "num_ranks": 2, "shares": (3, 1), "batch_size": 10}, ConfigError, "a device takes 7"),
        ({"image_size": None}, UsageError, "images of many sizes cannot be augmented"),
    ],
)
def test_what_cannot_be_mixed_says_so(
    dataset: Dataset, told: dict[str, Any], error: type[UsageError], message: str
) -> None:
    with pytest.raises(error, match=message):
        loader_of(dataset, **told)
