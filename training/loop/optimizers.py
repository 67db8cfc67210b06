"""Make the optimizer and its learning-rate schedule from the configuration."""

from __future__ import annotations

from typing import Any

import keras

from training.config import TrainConfig


def make_schedule(config: TrainConfig, total_steps: int) -> Any:
    """Make a schedule: linear warm-up, then half a cosine to 0 (Loshchilov and Hutter 2017) or a constant."""
    settings = config.optimizer
    warmup = min(round(total_steps * settings.warmup_fraction), total_steps - 1)
    constant = settings.schedule == "constant"
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else settings.learning_rate,
        decay_steps=max(total_steps - warmup, 1),
        alpha=1.0 if constant else 0.0,
        warmup_target=settings.learning_rate if warmup else None,
        warmup_steps=warmup,
    )


def make_optimizer(config: TrainConfig, schedule: Any) -> Any:
    """Make the optimizer; with float16 it scales the loss."""
    settings = config.optimizer
    decay = settings.weight_decay or None
    if settings.name == "sgd":
        optimizer = keras.optimizers.SGD(
            schedule, momentum=settings.momentum, nesterov=True, weight_decay=decay
        )
    elif settings.name == "adam":
        optimizer = keras.optimizers.Adam(schedule)
    else:
        optimizer = keras.optimizers.AdamW(schedule, weight_decay=settings.weight_decay)
    if optimizer.weight_decay is not None:
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    if config.run.mixed_precision == "float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer
