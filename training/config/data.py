"""The table [train.data]: which examples, in which order, at which size."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from infra.settings import Settings

Balance = Literal["natural", "uniform"]


class DataSettings(Settings):
    """Which examples, in which order, at which size."""

    image_size: int | None = Field(
        default=None,
        ge=8,
        le=4096,
        description="height and width of the model's input (pixels); default: the model's",
    )
    global_batch_size: int = Field(default=64, ge=1, description="examples a step, over all devices together")
    normalization: Literal["dataset", "fixed"] = Field(
        default="dataset",
        description="pixels as small_cnn and models of your own see them: 'dataset' (mean 0 and deviation 1 "
        "over the train split), or 'fixed' (-1 to 1); models of keras.applications have their own",
    )
    balance: Balance = Field(
        default="natural",
        description="classes in an epoch: 'natural' (each record once) or 'uniform' (equally often)",
    )
    last_batch: Literal["pad", "drop"] = Field(
        default="pad", description="a last step that is not full: padded at weight zero, or dropped"
    )
    seed: int = Field(
        default=0, ge=0, lt=2**63, description="names the order, the augmentation and the first weights"
    )
