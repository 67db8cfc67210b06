"""The table [train.optimizer]: how gradients change the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shardmill.infra.settings import AlsoCalled, Settings, WrongValue
from shardmill.training.config.optimizer_names import OPTIMIZERS, check_options, resolve_optimizer
from shardmill.training.schedules import SCHEDULES

if TYPE_CHECKING:
    ScheduleName = str
else:
    ScheduleName = Literal[tuple(SCHEDULES)]
_WITH_END = [name for name, schedule in SCHEDULES.items() if schedule.final_factor is not None]


class PruningSettings(Settings):
    """Magnitude pruning: the smallest weights become zero during training, and stay zero."""

    final_sparsity: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description=("Share of each layer's weights that become zero, without biases and normalisation"),
    )
    begin_epochs: float = Field(
        default=0.0, ge=0, le=1_000_000, description="epochs after which pruning begins"
    )
    end_epochs: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="epochs after which final_sparsity is reached",
    )
    every_steps: int = Field(
        default=100,
        ge=1,
        le=1_000_000_000,
        description="steps between two choices of weights",
    )

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.final_sparsity and self.end_epochs is None:
            raise WrongValue(
                f"final_sparsity = {self.final_sparsity:g} without end_epochs",
                "set optimizer.pruning.end_epochs, the epochs after which it is reached",
            )
        if self.end_epochs is not None and self.end_epochs <= self.begin_epochs:
            raise WrongValue(
                f"end_epochs = {self.end_epochs:g} is not above begin_epochs = {self.begin_epochs:g}",
                "raise the one or lower the other",
            )
        return self


class OptimizerSettings(Settings):
    """How weights follow gradients."""

    name: Annotated[str, AlsoCalled("optimizer", "optim")] = Field(
        default="adamw",
        description=(
            "adamw, adam, sgd (with Nesterov momentum), lion, lamb, muon, nadam, adamax, rmsprop, "
            "adafactor, adagrad, adadelta or ftrl"
        ),
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the Keras optimizer, as in { beta_2 = 0.98 }",
    )
    learning_rate: Annotated[float | None, AlsoCalled("lr", "rate")] = Field(
        default=None,
        gt=0,
        le=1000,
        description=(
            "the highest; default: 0.002 (adamw, lamb), 0.05 (sgd), 0.0003 (lion), 1 (adadelta), "
            "0.01 (adagrad), else 0.001"
        ),
    )
    head_learning_rate: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description=("Rate in model.warm_head_epochs; default: that of learning_rate"),
    )
    schedule: Annotated[ScheduleName, AlsoCalled("scheduler", "lr_schedule")] = Field(
        default="cosine",
        description="After the warm-up: "
        + ", ".join(f"'{name}'" + f" ({one.meaning})" * bool(one.meaning) for name, one in SCHEDULES.items()),
    )
    warmup_fraction: float = Field(default=0.1, ge=0, lt=1, description="share of the steps of warm-up")
    warmup_steps: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000_000,
        description="steps of warm-up; default: by warmup_fraction",
    )
    final_factor: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description=f"Last rate of {' and '.join(map(repr, _WITH_END))} as a share of the highest; default: "
        + " and ".join(f"{SCHEDULES[name].final_factor:g}" for name in _WITH_END),
    )
    step_epochs: list[int] = Field(
        default_factory=list,
        description="'step': epochs after which the rate falls, as in [30, 60, 80]",
    )
    step_factor: float = Field(default=0.1, gt=0, lt=1, description="'step': factor by which it falls")
    weight_decay: Annotated[float | None, AlsoCalled("wd", "decay")] = Field(
        default=None,
        ge=0,
        le=1000,
        description=(
            "Share of rate * weight taken away each step, not from biases and normalisation; "
            "default: 0.01 (adamw, lamb), 0.0005 (sgd), 0.1 (lion), 0.004 (muon), else 0"
        ),
    )
    first_layer_factor: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description=(
            "Share of the rate at which the first layer learns; the last has the full rate, others "
            "geometric steps"
        ),
    )
    clip_norm: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        description="longest gradient (L2 norm); longer ones are scaled down",
    )
    ema_decay: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description=(
            "Decay of moving averages of the weights, which are evaluated and exported; usually 0.999"
        ),
    )
    pruning: PruningSettings = Field(
        default_factory=PruningSettings, description="magnitude pruning with a schedule"
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of the target spread over all classes"
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return resolve_optimizer(name)

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        check_options(self.name, self.options)
        if self.name == "adam" and self.weight_decay:
            raise WrongValue(
                f"adam has no weight decay, but weight_decay is {self.weight_decay:g}",
                "set optimizer.name = 'adamw', which is Adam with weight decay",
            )
        if self.pruning.final_sparsity and self.ema_decay is not None:
            raise WrongValue(
                "pruning and ema_decay exclude each other, since averages of weights with other zeros have "
                "fewer zeros",
                "leave one of them out",
            )
        if (self.schedule == "step") != bool(self.step_epochs):
            raise WrongValue(
                f"schedule = {self.schedule!r} and step_epochs = {self.step_epochs} do not go together",
                "give both, as in schedule = 'step', step_epochs = [30, 60]; or leave step_epochs out",
            )
        if self.step_epochs != sorted({epoch for epoch in self.step_epochs if epoch > 0}):
            raise WrongValue(
                f"step_epochs = {self.step_epochs} are not positive and rising", "order them, as in [30, 60]"
            )
        if self.final_factor is not None and self.schedule not in _WITH_END:
            belongs = " and ".join(map(repr, _WITH_END))
            raise WrongValue(
                f"final_factor belongs to {belongs}, not to {self.schedule!r}",
                "leave it out, or set optimizer.schedule to one of these",
            )
        return self

    @property
    def rate(self) -> float:
        """The highest learning rate: the setting, or the default of the optimizer."""
        return OPTIMIZERS[self.name].learning_rate if self.learning_rate is None else self.learning_rate

    def rising_steps(self, total_steps: int) -> int:
        """Return the steps of the warm-up; at least one step of the run has the full rate."""
        wanted = self.warmup_steps
        if wanted is None:
            wanted = round(total_steps * self.warmup_fraction)
        return max(min(wanted, total_steps - 1), 0)

    @property
    def head_rate(self) -> float:
        """The rate of a classifier that learns alone: the setting, or the default of the optimizer."""
        default = OPTIMIZERS[self.name].learning_rate
        return default if self.head_learning_rate is None else self.head_learning_rate

    @property
    def decay(self) -> float:
        """The weight decay: the setting, or the default of the optimizer."""
        return OPTIMIZERS[self.name].weight_decay if self.weight_decay is None else self.weight_decay
