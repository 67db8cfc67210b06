"""The optimizers of Keras by name: their options, and this project's defaults.

A plain table, so that settings are checked without importing Keras; a test compares it with Keras itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shardmill.infra.near_names import near_miss
from shardmill.infra.settings import WrongValue

# Options of every Keras optimizer that a setting of this project takes the place of.
SETTINGS_INSTEAD: Final = {
    "learning_rate": "optimizer.learning_rate",
    "weight_decay": "optimizer.weight_decay",
    "clipnorm": "optimizer.clip_norm",
    "clipvalue": "optimizer.clip_norm",
    "global_clipnorm": "optimizer.clip_norm",
    "use_ema": "optimizer.ema_decay",
    "ema_momentum": "optimizer.ema_decay",
    "ema_overwrite_frequency": "optimizer.ema_decay",
    "loss_scale_factor": "run.mixed_precision",
    "gradient_accumulation_steps": "run.accumulate_steps",
}
NOT_OFFERED: Final = {
    "lossscaleoptimizer": "it belongs to run.mixed_precision = 'float16'",
    "multioptimizer": "one optimizer trains all layers",
    "schedulefreeadamw": "its weights during training are not those that should be evaluated",
}


@dataclass(frozen=True, slots=True)
class KnownOptimizer:
    """An optimizer of Keras.

    Attributes:
        class_name: its name in ``keras.optimizers``.
        options: the names of its options, besides those that settings of this project replace.
        learning_rate: the default of ``optimizer.learning_rate``.
        weight_decay: the default of ``optimizer.weight_decay``.
        preset: options whose default differs from that of Keras.
    """

    class_name: str
    options: tuple[str, ...]
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    preset: Mapping[str, Any] = field(default_factory=dict)


_ADAM = ("beta_1", "beta_2", "epsilon")
_MUON = (
    "adam_beta_1", "adam_beta_2", "adam_weight_decay", "epsilon", "exclude_layers", "exclude_embeddings",
    "muon_a", "muon_b", "muon_c", "adam_lr_ratio", "momentum", "ns_steps", "nesterov", "rms_rate",
)  # fmt: skip
_FTRL = (
    "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength",
    "l2_regularization_strength", "l2_shrinkage_regularization_strength", "beta",
)  # fmt: skip
_ADAFACTOR = ("beta_2_decay", "epsilon_1", "epsilon_2", "clip_threshold", "relative_step")

OPTIMIZERS: Final[dict[str, KnownOptimizer]] = {
    "adadelta": KnownOptimizer("Adadelta", ("rho", "epsilon"), learning_rate=1.0),
    "adafactor": KnownOptimizer("Adafactor", _ADAFACTOR),
    "adagrad": KnownOptimizer("Adagrad", ("initial_accumulator_value", "epsilon"), learning_rate=1e-2),
    "adam": KnownOptimizer("Adam", (*_ADAM, "amsgrad")),
    "adamax": KnownOptimizer("Adamax", _ADAM),
    "adamw": KnownOptimizer("AdamW", (*_ADAM, "amsgrad"), learning_rate=2e-3, weight_decay=1e-2),
    "ftrl": KnownOptimizer("Ftrl", _FTRL),
    "lamb": KnownOptimizer("Lamb", _ADAM, learning_rate=2e-3, weight_decay=1e-2),
    # Chen et al. 2023: a rate 3 to 10 times smaller than AdamW's, and a decay as many times larger.
    "lion": KnownOptimizer("Lion", ("beta_1", "beta_2"), learning_rate=3e-4, weight_decay=0.1),
    "muon": KnownOptimizer("Muon", _MUON, weight_decay=4e-3),
    "nadam": KnownOptimizer("Nadam", _ADAM),
    "rmsprop": KnownOptimizer("RMSprop", ("rho", "momentum", "epsilon", "centered")),
    "sgd": KnownOptimizer(
        "SGD",
        ("momentum", "nesterov"),
        learning_rate=0.05,
        weight_decay=5e-4,
        preset={"momentum": 0.9, "nesterov": True},
    ),
}


def resolve_optimizer(name: str) -> str:
    """Return the listed name of an optimizer in any spelling.

    Raises:
        ValueError: there is no such optimizer; suggests the near miss.
    """
    spelling = name.lower().replace("_", "").replace("-", "")
    if spelling in OPTIMIZERS:
        return spelling
    if spelling in NOT_OFFERED:
        raise ValueError(f"this optimizer of Keras cannot be used here: {NOT_OFFERED[spelling]}")
    raise WrongValue("unknown optimizer", near_miss(spelling, list(OPTIMIZERS)))


def check_options(name: str, options: Iterable[str]) -> None:
    """Check the names of options.

    Raises:
        ValueError: the optimizer has no such option; suggests the near miss, or the setting to use instead.
    """
    known = OPTIMIZERS[name].options
    for option in options:
        if option in SETTINGS_INSTEAD:
            raise WrongValue(f"{option!r} is no option here", f"set {SETTINGS_INSTEAD[option]}")
        if option not in known:
            raise WrongValue(f"{name} has no option {option!r}", near_miss(option, list(known)))
