"""A function of the user's own for each example: its records, its random numbers, its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from shardmill import Dataset
from shardmill.infra.errors import UsageError
from shardmill.training.torch.data import TorchLoader, TransformRecord

SIZE = 24


def loader_of(dataset: Dataset, **told: Any) -> TorchLoader:
    settings: dict[str, Any] = {"batch_size": 10, "image_size": SIZE, "seed": 3, "num_epochs": 1}
    return dataset.torch("train", **{**settings, "num_workers": 0, **told})


def normalised(image: Any, record: TransformRecord) -> Any:
    """float32 [4, h, w]: the image, and the position."""
    assert image.dtype == torch.uint8
    position = torch.full((1, *image.shape[1:]), float(record.position))
    return torch.cat([image.float() / 255, position])


def noise(image: Any, record: TransformRecord) -> Any:
    return torch.rand(1, 2, 3)


@pytest.mark.parametrize(("num_workers", "context"), [(0, None), (2, "fork"), (2, "spawn")])
def test_each_image_is_what_the_function_returned(dataset: Dataset, num_workers: int, context: Any) -> None:
    told = {"num_workers": num_workers, "multiprocessing_context": context}
    loader = loader_of(dataset, transform=normalised, **told)
    for batch, plain in zip(loader, loader_of(dataset), strict=True):
        assert torch.equal(batch.images[:, :3], plain.images.float() / 255)
        assert batch.images[:, 3, 0, 0].tolist() == plain.positions.tolist()
        assert torch.equal(batch.labels, plain.labels)
        assert batch.sizes.tolist() == [[SIZE, SIZE]] * 10


def test_random_numbers_depend_on_the_position_alone(dataset: Dataset) -> None:
    alone = list(loader_of(dataset, transform=noise))
    ranks = [loader_of(dataset, transform=noise, rank=rank, num_ranks=2, num_workers=1) for rank in range(2)]
    for whole, *parts in zip(alone, *ranks, strict=True):
        assert whole.images.shape == (10, 1, 2, 3)
        assert torch.equal(torch.cat([part.images for part in parts]), whole.images)
    drawn = torch.cat([batch.images for batch in alone]).flatten(1)
    assert len(drawn.unique(dim=0)) == len(drawn)
    other = next(iter(loader_of(dataset, transform=noise, seed=4)))
    assert not torch.equal(other.images, alone[0].images)


def test_the_generator_of_the_process_is_left_as_it_was(dataset: Dataset) -> None:
    drawn = []
    for transform in (None, noise):
        torch.manual_seed(1)
        list(loader_of(dataset, transform=transform))
        drawn.append(torch.rand(3).tolist())
    assert drawn[0] == drawn[1]


def test_the_record_is_that_of_the_index(dataset: Dataset) -> None:
    seen: list[TransformRecord] = []

    def noted(image: Any, record: TransformRecord) -> Any:
        seen.append(record)
        return image

    batches = list(loader_of(dataset, transform=noted, first_epoch=2))
    ordinals = torch.cat([batch.ordinals for batch in batches]).numpy()
    table = dataset.table("train")
    assert [record.id for record in seen] == table.ids(ordinals)
    assert [record.label for record in seen] == table.label[ordinals].tolist()
    assert [record.class_name for record in seen] == [
        dataset.classes[label] for label in table.label[ordinals]
    ]
    assert [record.position for record in seen] == list(range(50))
    assert {record.epoch for record in seen} == {2}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_whole_images_may_become_one_size(dataset: Dataset, num_workers: int) -> None:
    def central(image: Any, record: TransformRecord) -> Any:
        return image[:, 10:26, 20:36].float()

    loader = loader_of(dataset, image_size=None, transform=central, num_workers=num_workers)
    plain = next(iter(loader_of(dataset, image_size=None)))
    batch = next(iter(loader))
    assert torch.equal(batch.images, plain.images[:, :, 10:26, 20:36].float())
    assert batch.sizes.tolist() == [[16, 16]] * 10


def of_third(record: TransformRecord, usual: Any, other: Any) -> Any:
    return other if record.position == 2 else usual


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("image_size", [SIZE, None])
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (torch.zeros(3, 4, 4), r"float32 \[3, 4, 4\] of record {id}, and uint8 \[3, 4, 4\] of record"),
        (np.zeros((3, 4, 4), np.uint8), "returned an object of type ndarray for record {id}"),
        (torch.zeros(3, 4, dtype=torch.uint8), r"returned uint8 \[3, 4\] for record {id}"),
    ],
)
def test_what_a_function_may_not_return(
    dataset: Dataset, num_workers: int, image_size: int | None, other: Any, message: str
) -> None:
    def wrong(image: Any, record: TransformRecord) -> Any:
        return of_third(record, image[:, :4, :4], other)

    third = dataset.table("train").ids(next(iter(loader_of(dataset))).ordinals.numpy())[2]
    loader = loader_of(dataset, transform=wrong, num_workers=num_workers, image_size=image_size)
    with pytest.raises(UsageError, match=message.replace("{id}", third)):
        list(loader)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_names_the_record_and_the_line(dataset: Dataset, num_workers: int) -> None:
    def failing(image: Any, record: TransformRecord) -> Any:
        return of_third(record, image, None) + 0

    third = dataset.table("train").ids(next(iter(loader_of(dataset))).ordinals.numpy())[2]
    with pytest.raises(
        UsageError, match=rf"transform failed at record {third} \(class .*: TypeError:"
    ) as caught:
        list(loader_of(dataset, transform=failing, num_workers=num_workers))
    assert caught.value.remedy is not None
    assert "test_transform.py" in caught.value.remedy


def test_a_function_that_cannot_be_spawned_is_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match="cannot be sent to spawned workers"):
        loader_of(
            dataset, transform=lambda image, record: image, num_workers=1, multiprocessing_context="spawn"
        )
