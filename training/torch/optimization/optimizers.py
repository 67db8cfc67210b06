"""Make the optimizer from the configuration, with decoupled weight decay and a rate for each layer."""

from __future__ import annotations

from typing import Any

import torch

from shardmill.infra.errors import ConfigError
from shardmill.training.config import OptimizerSettings
from shardmill.training.config.optimizer_names import OPTIMIZERS
from shardmill.training.config.torch_settings import TORCH_OPTIMIZERS
from shardmill.training.torch.models.layers import NORMALIZATIONS, weighted_modules


def make_optimizer(settings: OptimizerSettings, model: Any) -> Any:
    """Make the optimizer for the trainable weights of a model.

    Its groups have, besides the keys of PyTorch, ``rate_factor``, the share of the learning rate, and
    ``decay``, the decoupled weight decay.

    Raises:
        ConfigError: PyTorch refuses the value of an option.
    """
    known = TORCH_OPTIMIZERS[settings.name]
    given = {**OPTIMIZERS[settings.name].preset, **settings.options}
    options = {known.options[name]: value for name, value in given.items()}
    try:
        if betas := [options.pop(name, default) for name, default in _betas(known.options)]:
            options["betas"] = tuple(betas)
        optimizer = getattr(torch.optim, known.class_name)(_groups(settings, model), lr=1.0, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"optimizer.options = {settings.options}: torch.optim.{known.class_name} refuses them: {error}",
            "see the page of the optimizer in the PyTorch documentation",
        ) from error
    optimizer.register_step_pre_hook(_decay)
    return optimizer


def set_rate(optimizer: Any, rate: float) -> None:
    """Let the next step take a learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]


def prepare_state(optimizer: Any) -> None:
    """Create the optimizer state that PyTorch otherwise creates in the first step.

    A checkpoint can then be restored into it. The weights stay as they are.
    """
    set_rate(optimizer, 0.0)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    # A step with gradients of zero leaves all else at its start.
    starts = {"step": 0.0, "mu_product": 1.0}
    for parameter in parameters:
        for name, value in optimizer.state[parameter].items():
            if name in starts:
                value.fill_(starts[name])


def _betas(options: dict[str, str]) -> list[tuple[str, float]]:
    """Return name and default of the two betas; none if the optimizer has none."""
    return [("beta_1", 0.9), ("beta_2", 0.999)] if "beta_1" in options else []


def _groups(settings: OptimizerSettings, model: Any) -> list[dict[str, Any]]:
    """Sort the trainable weights by rate and by whether they decay."""
    layers = [
        (module, trainable)
        for _, module in weighted_modules(model)
        if (trainable := [own for own in module.parameters(recurse=False) if own.requires_grad])
    ]
    last = max(len(layers) - 1, 1)
    groups: dict[tuple[float, float], list[Any]] = {}
    seen: set[int] = set()
    for number, (module, trainable) in enumerate(layers):
        factor = settings.first_layer_factor ** (1 - number / last)
        for parameter in trainable:
            if id(parameter) in seen:  # two modules share it
                continue
            seen.add(id(parameter))
            decays = parameter.ndim >= 2 and not isinstance(module, NORMALIZATIONS)
            groups.setdefault((factor, settings.decay if decays else 0.0), []).append(parameter)
    return [
        {"params": parameters, "rate_factor": factor, "decay": decay}
        for (factor, decay), parameters in groups.items()
    ]


def _decay(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    """Take rate * decay * weight away from each weight, just before the optimizer's own step."""
    with torch.no_grad():
        for group in optimizer.param_groups:
            if group["decay"]:
                for parameter in group["params"]:
                    parameter.mul_(1.0 - group["lr"] * group["decay"])
