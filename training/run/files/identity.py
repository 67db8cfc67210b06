"""Name a training run by everything that affects its outcome. Imports no TensorFlow."""

from __future__ import annotations

from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import digest_of
from shardmill.infra.plugins import versions_of
from shardmill.training.config import TrainConfig, own_code
from shardmill.training.reading.opening import consumed, mode_of_run
from shardmill.training.run.files.lengthening import may_be_lengthened
from shardmill.training.tasks.settings import settings_for

# Settings of [train.run] that do not change the outcome. A run can be resumed with other values of them.
_WITHOUT_EFFECT = (
    "devices",
    "gpu_memory_limit_bytes",
    "fresh",
    "preemption_signal",
    "checkpoint_every_steps",
    "checkpoint_every_seconds",
    "keep_checkpoints",
    "log_every_steps",
    "log_pictures",
    "profile_steps",
    "evaluate_train",
)
# The settings of the first release with run names. Later ones are left out of the identity at their defaults,
# so that earlier runs keep their names.
_FIRST = {
    "model": {"name", "weights", "dropout", "freeze", "synchronized_batchnorm"},
    "run": {"epochs", "mixed_precision", "accumulate_steps", "jit_compile", "deterministic",
            "validate_every_epochs", "best_metric", "patience", "callbacks", "trace_records"},
    "data": {"image_size", "image_channels", "global_batch_size", "normalization", "balance", "balance_beta",
             "balance_threshold", "balance_weights", "class_weights", "granularity", "block_records",
             "window_blocks", "last_batch", "seed"},
    "augment": {"random_resized_crop", "scale", "ratio", "horizontal_flip", "vertical_flip", "color_jitter",
                "erasing", "randaugment", "mixup", "cutmix", "mix_probability"},
    "optimizer": {"name", "options", "learning_rate", "schedule", "warmup_fraction", "warmup_steps",
                  "final_factor", "step_epochs", "step_factor", "weight_decay", "first_layer_factor",
                  "clip_norm", "ema_decay", "label_smoothing"},
    "export": {"formats", "max_accuracy_loss"},
}  # fmt: skip


def run_identity(config: TrainConfig, version: DatasetVersion) -> dict[str, Any]:
    """Return everything that affects the outcome of a run, JSON-able. Equal identities mean the same run.

    The number of epochs is part of it only where the schedule depends on it: other runs can be lengthened.

    Raises:
        UsageError: the version has no labels to learn.
        ConfigError: the version cannot be read as the settings ask, or the settings do not fit its labels.
    """
    config = settings_for(config, version)
    settings = config.model_dump(mode="json")
    del settings["ranks"], settings["tracking"], settings["export"]["signing_key"]
    for key in _WITHOUT_EFFECT:
        del settings["run"][key]
    defaults = type(config)().model_dump(mode="json")
    for table, first in _FIRST.items():
        given = settings[table].items()
        settings[table] = {
            key: value for key, value in given if key in first or value != defaults[table].get(key)
        }
    if may_be_lengthened(config.optimizer):
        del settings["run"]["epochs"]
    optimizer = config.optimizer
    settings["optimizer"] |= {"learning_rate": optimizer.rate, "weight_decay": optimizer.decay}
    settings["reading"] = consumed(config.reading, mode_of_run(config, version).mode)
    dataset = {"plan": version.manifest.plan_digest, "dataset": version.ref, **version.describe_view()}
    plugins = versions_of(own_code(config))
    return {**dataset, "config": settings} | ({"plugins": plugins} if plugins else {})


def run_name(config: TrainConfig, version: DatasetVersion) -> str:
    """Return the name of the run's folder: ``<dataset>-v<version>-<digest>``."""
    return f"{version.name}-v{version.version}-{digest_of(run_identity(config, version), length=10)}"
