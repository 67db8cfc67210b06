"""The settings that a training with PyTorch has a meaning for. All others must keep their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import Settings
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.config.data import DataSettings
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.models.names import FAMILIES, TORCHVISION, find_torchvision, is_built_in

if TYPE_CHECKING:
    from shardmill.training.config import TrainConfig

# The settings of reading that change what TensorFlow does alone.
_ONLY_OF_TENSORFLOW: Final = {"decoder", "mode", "shuffle_buffer", "parallel_shards"}
# Table -> its settings that shardmill.training.torch follows. New ones of data, augment and reading count as
# followed; those of other tables are refused until they stand here.
_KNOWN: Final = {
    "model": "name weights partial_weights dropout freeze warm_head_epochs synchronized_batchnorm",
    "data": " ".join(DataSettings.model_fields),
    "reading": " ".join(ReadingSettings.model_fields.keys() - _ONLY_OF_TENSORFLOW),
    "augment": " ".join(AugmentSettings.model_fields),
    "optimizer": "name options learning_rate head_learning_rate schedule warmup_fraction warmup_steps "
    "final_factor step_epochs step_factor weight_decay first_layer_factor clip_norm ema_decay "
    "label_smoothing pruning",
    "export": "signing_key",
    "run": "framework epochs devices mixed_precision accumulate_steps deterministic validate_every_epochs "
    "best_metric patience checkpoint_every_steps checkpoint_every_seconds keep_checkpoints log_every_steps "
    "log_pictures trace_records preemption_signal fresh gpu_memory_limit_bytes profile_steps rematerialize "
    "evaluate_train",
    "tracking": "experiment registered_model alias",
    "ranks": "workers launcher ray slurm kubernetes max_restarts collectives peer_timeout_seconds "
    "start_timeout_seconds step_timeout_seconds stop_timeout_seconds shares",
}
# Further values that mean the same as the default.
_ALSO_FINE: Final = {
    "reading.decoder": ("turbo",),
    "reading.mode": ("indexed",),
    "export.formats": (("onnx",),),
}


@dataclass(frozen=True, slots=True)
class TorchOptimizer:
    """An optimizer of PyTorch that trains as the optimizer of Keras of the same name.

    Attributes:
        class_name: its name in ``torch.optim``.
        options: an option of Keras -> its name in PyTorch.
    """

    class_name: str
    options: dict[str, str]


_BETAS = {"beta_1": "beta_1", "beta_2": "beta_2", "epsilon": "eps"}
TORCH_OPTIMIZERS: Final = {
    "adadelta": TorchOptimizer("Adadelta", {"rho": "rho", "epsilon": "eps"}),
    "adagrad": TorchOptimizer(
        "Adagrad", {"initial_accumulator_value": "initial_accumulator_value", "epsilon": "eps"}
    ),
    "adam": TorchOptimizer("Adam", {**_BETAS, "amsgrad": "amsgrad"}),
    "adamax": TorchOptimizer("Adamax", _BETAS),
    "adamw": TorchOptimizer("Adam", {**_BETAS, "amsgrad": "amsgrad"}),
    "nadam": TorchOptimizer("NAdam", _BETAS),
    "rmsprop": TorchOptimizer(
        "RMSprop", {"rho": "alpha", "momentum": "momentum", "epsilon": "eps", "centered": "centered"}
    ),
    "sgd": TorchOptimizer("SGD", {"momentum": "momentum", "nesterov": "nesterov"}),
}


def check_framework(config: TrainConfig) -> None:
    """Check that the framework of a run can do what its settings ask for.

    Raises:
        ConfigError: it cannot; names the setting.
    """
    name = config.model.name
    if config.run.framework == "tensorflow":
        if name in TORCHVISION or (name in FAMILIES["torch"] and name not in FAMILIES["tensorflow"]):
            raise ConfigError(
                f"model.name = {name!r} is a model of {'torchvision' if name in TORCHVISION else 'PyTorch'}",
                "set run.framework to torch (--framework torch), or choose a model of keras.applications",
            )
        return
    for key, value, default in _settings(config):
        table, _, name = key.partition(".")
        if name in _KNOWN.get(table, "").split() or value == default or value in _ALSO_FINE.get(key, ()):
            continue
        raise _refused(key, value, f"leave {key} out, or train with run.framework = 'tensorflow'")
    _check_model(config)
    _check_optimizer(config)


def _settings(config: TrainConfig) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, value and default of each setting of each table."""
    for table, fields in config:
        if isinstance(fields, Settings):
            defaults = type(fields)()
            for name in type(fields).model_fields:
                yield f"{table}.{name}", getattr(fields, name), getattr(defaults, name)


def _check_model(config: TrainConfig) -> None:
    name = config.model.name
    if is_built_in(name) and name not in FAMILIES["torch"] and find_torchvision(name) is None:
        raise _refused(
            "model.name",
            name,
            f"choose {', '.join(FAMILIES['torch'])}, a model of torchvision such as resnet50, or a module of "
            "your own",
        )
    if config.model.weights == "imagenet":
        raise _refused(
            "model.weights", "imagenet", "give the path of a .pt file of weights from the torchvision site"
        )


def _check_optimizer(config: TrainConfig) -> None:
    settings = config.optimizer
    known = TORCH_OPTIMIZERS.get(settings.name)
    if known is None:
        raise _refused("optimizer.name", settings.name, f"choose one of: {', '.join(TORCH_OPTIMIZERS)}")
    for option in settings.options:
        if option not in known.options:
            raise _refused(
                f"optimizer.options.{option}",
                settings.options[option],
                f"{settings.name} has {', '.join(known.options)} there",
            )


def _refused(key: str, value: object, remedy: str) -> ConfigError:
    return ConfigError(f"{key} = {value!r} does not work with run.framework = 'torch'", remedy)
