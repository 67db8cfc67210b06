"""Arguments of the part for PyTorch: a wrong type or name is refused at once, in words."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from shardmill import Dataset
from shardmill.infra.errors import UsageError
from shardmill.training.torch.data import TorchOptions
from tests.samples.public_api import Wrong, check_refusals, public_functions

FUNCTIONS = dict(public_functions(of_torch=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_refuse_wrong_arguments(name: str) -> None:
    check_refusals(FUNCTIONS[name])


def test_the_loader_of_a_dataset_refuses_them_too(dataset: Dataset) -> None:
    for parameter in [*get_type_hints(TorchOptions), "rank", "num_ranks", "shares", "preload"]:
        with pytest.raises(UsageError, match=f"{parameter} = WRONG"):
            dataset.torch("train", **{parameter: Wrong()})  # type: ignore[misc]
    for wrong, message in (
        ({"augment": None}, "augment = None"),
        ({"image_size": (64, 48)}, "images are square"),
        ({"last_batch": "partial"}, "not for PyTorch"),
        ({"threads": 2}, "unknown argument 'threads'"),
    ):
        with pytest.raises(UsageError, match=message):
            dataset.torch("train", num_workers=0, **wrong)  # type: ignore[arg-type]
    plain = dataset.torch("test", image_size=(16, 16), num_workers=0)
    assert next(iter(plain)).images.shape[2:] == (16, 16)
