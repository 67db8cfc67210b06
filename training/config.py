"""What a training run is asked to do: the table ``[train]`` of a configuration. Imports no TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from infra.digests import digest_of
from infra.settings import Settings
from training.models import resolve_name

if TYPE_CHECKING:
    from infra.catalog import DatasetVersion

Balance = Literal["natural", "uniform"]

# Settings that say how a run is carried out and not what comes of it; they do not name the run, so that it
# can be resumed with others.
_HOW_NOT_WHAT = (
    "devices",
    "logical_devices",
    "fresh",
    "checkpoint_every_steps",
    "checkpoint_every_seconds",
    "keep_checkpoints",
    "log_every_steps",
)


class ModelSettings(Settings):
    """The model and where its weights begin."""

    name: str = Field(
        default="small_cnn",
        description="small_cnn, a model of keras.applications (ResNet50, EfficientNetB0, …), "
        "or a module with a build function by its dotted name",
    )
    weights: str | None = Field(
        default=None,
        description="initial weights: none (random), 'imagenet' (downloaded by Keras), or the path of a "
        ".weights.h5 or .keras file",
    )
    dropout: float = Field(
        default=0.2, ge=0, lt=1, description="share of features dropped before the classifier"
    )

    synchronized_batchnorm: bool = Field(
        default=True,
        description="with several devices, batch normalisation over the whole global batch as on one; "
        "off, over each device's part: deep models then compile several times sooner",
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return resolve_name(name)


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


class AugmentSettings(Settings):
    """How a training example may differ from its stored image."""

    random_resized_crop: bool = Field(
        default=True, description="cut a random window; otherwise the central square"
    )
    scale: tuple[float, float] = Field(
        default=(0.5, 1.0), description="smallest and largest share of the image's area in a random window"
    )
    ratio: tuple[float, float] = Field(
        default=(0.75, 4 / 3), description="narrowest and widest aspect ratio of a random window"
    )
    horizontal_flip: bool = Field(
        default=True,
        description="mirror every other image; turn it off where left and right differ, as in digits",
    )

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale {self.scale}: smallest and largest share must rise within (0, 1]")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio {self.ratio}: narrowest and widest must rise and be positive")
        return self


class OptimizerSettings(Settings):
    """How weights follow gradients."""

    name: Literal["adamw", "adam", "sgd"] = Field(
        default="adamw", description="adamw, adam, or sgd with momentum"
    )
    learning_rate: float = Field(default=2e-3, gt=0, description="the highest, after warm-up")
    schedule: Literal["cosine", "constant"] = Field(default="cosine", description="what follows the warm-up")
    warmup_fraction: float = Field(
        default=0.1, ge=0, lt=1, description="share of the steps in which the rate rises"
    )
    weight_decay: float = Field(
        default=1e-2, ge=0, description="decoupled; not applied to biases and normalisation"
    )
    momentum: float = Field(default=0.9, ge=0, lt=1, description="of sgd")
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of the target spread over all classes"
    )


class RunSettings(Settings):
    """How the run is carried out."""

    epochs: int = Field(default=12, ge=1, description="passes over the train split")
    devices: Literal["auto", "one"] = Field(
        default="auto", description="'auto': every visible GPU (or the CPU); 'one': the first only"
    )
    logical_devices: int = Field(
        default=0,
        ge=0,
        le=64,
        description="split the CPU into so many devices, which stand in for GPUs in trials",
    )
    mixed_precision: Literal["off", "bfloat16", "float16"] = Field(
        default="off", description="type of the computation; weights and loss stay float32"
    )
    deterministic: bool = Field(
        default=False, description="only operations whose result is the same bit for bit each time (slower)"
    )
    validate_every_epochs: int = Field(
        default=1, ge=1, description="epochs between looks at the validation split"
    )
    checkpoint_every_steps: int | None = Field(
        default=None, ge=1, description="steps between checkpoints, besides that at the end of each epoch"
    )
    checkpoint_every_seconds: float = Field(
        default=300.0, gt=0, description="longest time without a checkpoint, at the next step boundary"
    )
    keep_checkpoints: int = Field(default=2, ge=1, description="latest checkpoints kept, besides the best")
    log_every_steps: int = Field(default=10, ge=1, description="steps between figures of the train split")
    trace_records: bool = Field(
        default=False, description="write the ids of all records consumed to consumed.jsonl"
    )
    fresh: bool = Field(default=False, description="forget what an earlier run of this configuration did")


class TrainConfig(Settings):
    """The table [train]."""

    model: ModelSettings = Field(default_factory=ModelSettings, description="the model")
    data: DataSettings = Field(default_factory=DataSettings, description="examples and their order")
    augment: AugmentSettings = Field(
        default_factory=AugmentSettings, description="augmentation of training examples"
    )
    optimizer: OptimizerSettings = Field(
        default_factory=OptimizerSettings, description="optimizer and schedule"
    )
    run: RunSettings = Field(default_factory=RunSettings, description="how the run is carried out")


def run_identity(config: TrainConfig, version: DatasetVersion) -> dict[str, Any]:
    """All that the outcome of a run depends on. Equal identities are the same run."""
    what = config.model_dump(mode="json")
    for key in _HOW_NOT_WHAT:
        del what["run"][key]
    return {"plan": version.manifest.plan_digest, "dataset": version.ref, "config": what}


def run_name(config: TrainConfig, version: DatasetVersion) -> str:
    """Name of the run's folder: ``<dataset>-v<version>-<digest>``."""
    return f"{version.name}-v{version.version}-{digest_of(run_identity(config, version), length=10)}"
