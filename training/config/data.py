"""The table [train.data]: the examples, their order and their size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypedDict, get_args

from pydantic import Field, field_validator, model_validator

from shardmill.infra.errors import ConfigError
from shardmill.infra.preparation import MAX_CHANNELS
from shardmill.infra.settings import AlsoCalled, Settings, WrongValue
from shardmill.training.models.spec import Fit

Balance = Literal["natural", "uniform", "sqrt", "effective-number", "repeat-factor", "weights"]
Decoding = Literal["scaled", "whole"]
OfObjects = Literal["boxes", "oriented", "keypoints"]
WeightRuleName = Literal["none", "balanced", "effective-number"]
_MOST_IMAGES: Final = 1 << 24
DEFAULT_BETA: Final = 0.9999
DEFAULT_THRESHOLD: Final = 0.001
BalanceWeight = Annotated[float, Field(ge=0, le=1e6)]
MixtureEnd = Literal["first", "last"]
SetWeight = Annotated[float, Field(gt=0, le=1e12)]


class DataSettings(Settings):
    """The examples, their order and their size."""

    image_size: Annotated[int | None, AlsoCalled("img_size", "input_size", "size", "resolution")] = Field(
        default=None,
        ge=8,
        le=4096,
        description=("Height and width of the model's input; default: 256 for objects, else the model's"),
    )
    image_channels: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CHANNELS,
        description=(
            "Channels of the model's input; default: the dataset's, but 3 of 8 bits of grey or "
            "RGB; 1 takes their luma"
        ),
    )
    decoding: Decoding = Field(
        default="scaled",
        description=(
            "Decode JPEGs whose visible part is at least three times as large as the input "
            "'scaled' to a half, a quarter (39 dB or more from averaging all pixels) or an eighth "
            "(35), or 'whole', which takes longer"
        ),
    )
    fit: Fit | None = Field(
        default=None,
        description=(
            "What is seen of images that are not square: 'crop': the central square; 'stretch': "
            "all, squeezed; default: 'stretch' for objects and masks"
        ),
    )
    objects: OfObjects = Field(
        default="boxes",
        description="What is learned of objects: 'boxes', 'oriented' boxes, or 'keypoints' of one an image",
    )
    global_batch_size: Annotated[
        Annotated[int, Field(ge=1, le=_MOST_IMAGES)] | Literal["auto"],
        AlsoCalled("batch_size", "batch", "bs"),
    ] = Field(
        default=64,
        description=("Examples a step, over all devices; 'auto': the most that fit into memory"),
    )
    normalization: Literal["dataset", "fixed"] = Field(
        default="dataset",
        description=(
            "Input of small_cnn, compact_resnet and your models: 'dataset' (mean 0, deviation 1 of "
            "the train split) or 'fixed' (-1 to 1)"
        ),
    )
    balance: Annotated[Balance, AlsoCalled("sampling", "oversampling", "class_balance")] = Field(
        default="natural",
        description=("How often classes come; 'natural': each record once"),
    )
    balance_beta: float = Field(
        default=DEFAULT_BETA,
        ge=0,
        lt=1,
        description=("Beta of 'effective-number', also in class_weights: 0: as they are; near 1: equal"),
    )
    balance_threshold: float = Field(
        default=DEFAULT_THRESHOLD,
        gt=0,
        le=1,
        description="'repeat-factor': classes with a smaller share of the records are drawn more often",
    )
    balance_weights: dict[str, BalanceWeight] = Field(
        default_factory=dict,
        description=("'weights': class to its relative number of draws (1 where not named)"),
    )
    class_weights: WeightRuleName | dict[str, float] = Field(
        default="none",
        description=(
            "Weights in the loss: 'balanced' (the same total each), or class to weight (1 where not named)"
        ),
    )
    granularity: Literal["record", "block"] = Field(
        default="record",
        description=("Unit of shuffling; 'block': neighbours are read together, for slow random reads"),
    )
    block_records: int = Field(
        default=32,
        ge=1,
        le=1 << 20,
        description="records of a block",
    )
    window_blocks: int = Field(
        default=256,
        ge=1,
        le=1 << 20,
        description="blocks that are mixed record by record",
    )
    folds: int | None = Field(
        default=None,
        ge=2,
        le=100,
        description="folds of the train split; groups stay whole",
    )
    left_out_fold: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Train without this fold and predict it; `shardmill label-errors` sets both",
    )
    last_batch: Literal["pad", "drop"] = Field(default="pad", description="a last step that is not full")
    mixture_weights: list[SetWeight] = Field(
        default_factory=list, description="Share of each of several data sets in a step; unset: they are one"
    )
    mixture_temperature: float | None = Field(
        default=None, ge=0.1, le=1000, description="In place of weights: shares by size^(1/T)"
    )
    mixture_end: Annotated[int, Field(ge=1, le=1 << 40)] | MixtureEnd = Field(
        default="first",
        description="Ends an epoch: the 'first' set is through, the 'last' is, or so many steps",
    )
    seed: Annotated[int, AlsoCalled("random_seed")] = Field(
        default=0, ge=0, lt=2**63, description="seed of order, augmentation and initial weights"
    )

    @field_validator("global_batch_size", mode="before")
    @classmethod
    def _number_or_auto(cls, value: Any) -> Any:
        """Check the value here, since pydantic's message for a union would name both types."""
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value != "auto" and not (is_number and 1 <= value <= _MOST_IMAGES):
            raise ValueError(f"give 'auto', or a number from 1 to {_MOST_IMAGES}")
        return value

    @field_validator("mixture_weights", mode="before")
    @classmethod
    def _numbers_or_text(cls, value: Any) -> Any:
        """Take numbers between commas too, as a command line gives them."""
        if isinstance(value, int | float):
            return [value]
        return value.split(",") if isinstance(value, str) else value

    @field_validator("mixture_end", mode="before")
    @classmethod
    def _end_or_steps(cls, value: Any) -> Any:
        """Check the value here, since pydantic's message for a union would name both types."""
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value not in get_args(MixtureEnd) and not (is_number and 1 <= value <= 1 << 40):
            raise ValueError("give 'first', 'last', or a number of steps from 1 on")
        return value

    @field_validator("class_weights", mode="before")
    @classmethod
    def _name_or_weights(cls, value: Any) -> Any:
        """Check names and weights here, since pydantic's message for a union would name both types.

        The bounds are far beyond any use. Within them the weight of an example never rounds to zero.
        """
        names = get_args(WeightRuleName)
        if isinstance(value, Mapping):
            for name, weight in value.items():
                if not isinstance(weight, int | float) or not 1e-6 <= weight <= 1e6:
                    raise ValueError(f"the weight of {name!r} must be a number from 0.000001 to 1000000")
        elif value not in names:
            raise ValueError(f"give a table of class names and weights, or one of: {', '.join(names)}")
        return value

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.balance == "weights" and not self.balance_weights:
            raise WrongValue(
                "balance = 'weights' without balance_weights",
                "give them, as in balance_weights = { cat = 3 }",
            )
        if self.balance_weights and self.balance != "weights":
            raise WrongValue(
                f"balance_weights go with balance 'weights', not with {self.balance!r}",
                "set data.balance = 'weights', or leave balance_weights out",
            )
        if (self.folds is None) != (self.left_out_fold is None):
            raise WrongValue(
                "folds and left_out_fold go together", "give both, as in folds = 5, left_out_fold = 2"
            )
        if self.folds is not None and self.left_out_fold is not None:
            if self.left_out_fold > self.folds:
                raise WrongValue(
                    f"left_out_fold = {self.left_out_fold} of {self.folds} folds",
                    f"give a number from 1 to {self.folds}",
                )
            if self.granularity == "block":
                raise WrongValue(
                    "left_out_fold with granularity = 'block': a block has neighbouring records of all folds",
                    "set data.granularity = 'record'",
                )
        self._check_mixture()
        if self.granularity == "block" and self.balance != "natural":
            raise WrongValue(
                "data.granularity=block reads every record exactly once, so it cannot be combined with "
                f"data.balance={self.balance}",
                "set data.granularity=record, or use data.class_weights instead of data.balance",
            )
        return self

    def _check_mixture(self) -> None:
        """Check the settings of several data sets.

        Raises:
            WrongValue: they contradict each other, or another setting works with one order alone.
        """
        if self.mixture_weights and self.mixture_temperature is not None:
            raise WrongValue(
                "mixture_weights and mixture_temperature both set the shares of data sets",
                "leave one of them out",
            )
        if self.is_mixture and self.granularity == "block":
            raise WrongValue(
                "data.granularity = 'block' with shares of data sets: one order alone has windows",
                "set data.granularity = 'record', or leave mixture_weights and mixture_temperature out",
            )
        if self.is_mixture and self.left_out_fold is not None:
            raise WrongValue(
                "left_out_fold with shares of data sets: folds divide the records of one order",
                "search label errors in each data set by itself",
            )
        if self.mixture_end != "first" and not self.is_mixture:
            raise WrongValue(
                "mixture_end without shares of data sets",
                "give mixture_weights or mixture_temperature; without them an epoch has each record once",
            )

    @property
    def is_mixture(self) -> bool:
        """Whether the shares of several data sets in every step are set."""
        return bool(self.mixture_weights) or self.mixture_temperature is not None

    @property
    def mixture(self) -> dict[str, Any]:
        """The settings of the shares of several data sets that differ from their defaults; JSON-able."""
        return {
            name: value
            for name, value in self.model_dump(exclude_defaults=True).items()
            if name.startswith("mixture_")
        }

    @property
    def batch_size(self) -> int:
        """``global_batch_size`` where it is a number.

        Raises:
            ConfigError: it is still to be found.
        """
        if self.global_batch_size == "auto":
            raise ConfigError(
                "data.global_batch_size = 'auto' is found by a training that begins; this needs a number",
                "set data.global_batch_size, for example to that in the result of a run",
            )
        return self.global_batch_size


class OrderOptions(TypedDict, total=False):
    """The settings of the order as arguments, with their names and meanings (docs/configuration.md)."""

    balance: str
    balance_beta: float
    balance_threshold: float
    balance_weights: Mapping[str, float]
    class_weights: str | Mapping[str, float]
    granularity: Literal["record", "block"]
    block_records: int
    window_blocks: int


class ImageOptions(TypedDict, total=False):
    """The settings of what is seen of images, as arguments.

    Attributes:
        fit: what is seen of images without a random window: "crop" (the default), the central square; or
            "stretch", all of it, squeezed into a square.
        image_channels: for images of 8 bits, grey or RGB: 3 (the default), or 1, the luma of coloured ones;
            others have those of the data set.
        decoding: "scaled" (the default): JPEGs whose visible part is three times as large as the image, or
            more, are decoded straight to a half, a quarter or an eighth; or "whole".
    """

    fit: Fit
    image_channels: int | None
    decoding: Decoding
