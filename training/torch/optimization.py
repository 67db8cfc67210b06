"""The optimizer with decoupled weight decay and a rate for each layer; averages and pruning of weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from shardmill.infra.errors import ConfigError
from shardmill.training.config import OptimizerSettings
from shardmill.training.config.optimizer_names import OPTIMIZERS
from shardmill.training.config.torch_settings import TORCH_OPTIMIZERS
from shardmill.training.run.pruning import Pruning, PruningSchedule
from shardmill.training.torch.models.layers import NORMALIZATIONS, weighted_modules
from shardmill.training.torch.state import TensorState


class MaskedPruning(Pruning):
    """The masks of a model's weights; every rank computes the same.

    Attributes:
        schedule: when they are chosen, and how many weights.
        saved: the masks; the state for checkpoints.
    """

    def __init__(self, schedule: PruningSchedule, model: Any) -> None:
        """Begin with masks that leave everything. Biases and normalisation layers are left alone."""
        self.schedule = schedule
        self._pairs = [
            (torch.ones_like(own, dtype=torch.bool), own, f"keep.{name}.{part}")
            for name, module in weighted_modules(model)
            if not isinstance(module, NORMALIZATIONS)
            for part, own in module.named_parameters(recurse=False)
            if own.requires_grad and own.ndim >= 2
        ]
        self.saved = [TensorState(name, mask) for mask, _, name in self._pairs]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def after_step(self, steps_done: int) -> None:
        """Choose the weights that become zero where it is time to, and make the pruned ones zero again."""
        share = self.schedule.sparsity(steps_done) if self.schedule.is_due(steps_done) else None
        for mask, weights, _ in self._pairs:
            if share is not None:
                # Weights that are zero already come first, so that they stay zero.
                ranks = weights.abs().flatten().argsort(stable=True).argsort(stable=True)
                mask.copy_((ranks >= round(share * weights.numel())).view(mask.shape))
            weights.mul_(mask)

    def share_of_zeros(self) -> float:
        """Return the share of zeros among the weights that can be pruned."""
        zeros = sum(int((weights == 0).sum()) for _, weights, _ in self._pairs)
        return float(zeros / max(sum(mask.numel() for mask, _, _ in self._pairs), 1))


class WeightAverages:
    """The averages of all floating-point weights and statistics of a model.

    After n updates the decay is min(decay, (1 + n) / (10 + n)): the random weights of the beginning are soon
    forgotten.

    Attributes:
        saved: the averages and the number of updates, for checkpoints.
        evaluated: an array for each of ``model_state(model)``, in their order: its average, or itself where
            it is no floating-point number.
    """

    def __init__(self, states: list[TensorState], decay: float) -> None:
        """Begin with the values that ``states`` of the model have."""
        self._decay = decay
        self._pairs: list[tuple[Any, Any]] = []
        self.evaluated: list[TensorState] = []
        averages: list[TensorState] = []
        for state in states:
            if not state.tensor.is_floating_point():
                self.evaluated.append(state)
                continue
            average = state.tensor.detach().clone()
            self._pairs.append((average, state.tensor))
            averages.append(TensorState(state.path, average))
            self.evaluated.append(averages[-1])
        self._num_updates = torch.zeros((), dtype=torch.int64)
        self.saved: list[TensorState] = [*averages, TensorState("num_updates", self._num_updates)]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def update(self) -> None:
        """Move the averages towards the weights, after each step."""
        done = int(self._num_updates)
        share = 1.0 - min(self._decay, (1.0 + done) / (10.0 + done))
        for average, tensor in self._pairs:
            average.lerp_(tensor, share)
        self._num_updates += 1

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Let the model have the averages while the block runs."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _exchange(self) -> None:
        for average, tensor in self._pairs:
            value = tensor.clone()
            tensor.copy_(average)
            average.copy_(value)


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
