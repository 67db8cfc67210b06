"""Change the weights on every replica: by the gradients of a step, by moving averages, by pruning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shardmill.infra.errors import ConfigError
from shardmill.training.run.pruning import Pruning, PruningSchedule
from shardmill.training.tensorflow.models.layers import rate_factors, without_weight_decay


class MaskedPruning(Pruning):
    """The masks of a model's weights.

    Attributes:
        schedule: when they are chosen, and how many weights.
        variables: the masks; the state for checkpoints.
    """

    def __init__(self, schedule: PruningSchedule, model: Any, strategy: Any) -> None:
        """Begin with masks that leave everything. Call it in the scope of the strategy."""
        self.schedule = schedule
        left_alone = {id(variable) for variable in without_weight_decay(model)}
        self._pairs: list[tuple[Any, Any]] = []
        for variable in model.trainable_variables:
            if id(variable) not in left_alone:
                every, name = np.ones(tuple(variable.shape), bool), f"keep_{variable.path.replace('/', ':')}"
                mask = keras.Variable(every, trainable=False, dtype="bool", name=name)
                self._pairs.append((mask, variable))
        self.variables = [mask for mask, _ in self._pairs]
        self._choose = tf.function(
            lambda sparsity: strategy.run(self._choose_on_replica, args=(sparsity,)), autograph=False
        )

    def after_step(self, steps_done: int) -> None:
        """Choose the weights that become zero where it is time to. Call it after each step of the run."""
        if self.schedule.is_due(steps_done):
            self._choose(tf.constant(self.schedule.sparsity(steps_done), tf.float32))

    def keep_zeros(self) -> None:
        """Make the pruned weights zero again. Call it in replica context, after each update."""

        def on_all(strategy: Any) -> None:
            for mask, variable in self._pairs:
                strategy.extended.update(variable.value, _masked, args=(mask.value,), group=False)

        tf.distribute.get_replica_context().merge_call(on_all)

    def share_of_zeros(self) -> float:
        """Return the share of zeros among the weights that can be pruned."""
        zeros = sum(int(np.count_nonzero(variable.numpy() == 0)) for _, variable in self._pairs)
        return zeros / max(sum(int(np.prod(tuple(mask.shape))) for mask, _ in self._pairs), 1)

    def _choose_on_replica(self, sparsity: Any) -> None:
        def on_all(strategy: Any, sparsity: Any) -> None:
            for mask, variable in self._pairs:
                strategy.extended.update(mask.value, _set_mask, args=(variable.value, sparsity), group=False)

        tf.distribute.get_replica_context().merge_call(on_all, args=(sparsity,))
        self.keep_zeros()


def _masked(variable: Any, mask: Any) -> None:
    variable.assign(tf.where(mask, variable, tf.zeros_like(variable)))


def _set_mask(mask: Any, variable: Any, sparsity: Any) -> None:
    """Leave out the smallest weights of a layer, so many that ``sparsity`` of them are zero."""
    sizes = tf.abs(tf.reshape(variable, [-1]))
    count = tf.cast(tf.round(sparsity * tf.cast(tf.size(sizes), tf.float32)), tf.int32)
    # Weights that are zero already come first, so that they stay zero.
    ranks = tf.argsort(tf.argsort(sizes, stable=True))
    mask.assign(tf.reshape(ranks >= count, mask.shape))


class WeightAverages:
    """The averages of all floating-point variables of a model, also of moving statistics.

    After n updates the decay is min(decay, (1 + n) / (10 + n)), as in Keras and TensorFlow: the random
    weights of the beginning are soon forgotten.

    Attributes:
        variables: the averages and the number of updates; the state for checkpoints.
        evaluated: a variable for each of ``model.variables``, in their order: its average, or itself where it
            is no floating-point number.
    """

    def __init__(self, model: Any, decay: float) -> None:
        """Begin with the weights that the model has. Call it in the scope of the strategy."""
        self._decay = decay
        self._pairs: list[tuple[Any, Any]] = []
        self.evaluated: list[Any] = []
        for variable in model.variables:
            if not tf.as_dtype(variable.dtype).is_floating:
                self.evaluated.append(variable)
                continue
            name = variable.path.replace("/", ":")
            average = keras.Variable(variable.numpy(), trainable=False, dtype=variable.dtype, name=name)
            self._pairs.append((average, variable))
            self.evaluated.append(average)
        self._num_updates = keras.Variable(0, trainable=False, dtype="int64", name="num_updates")
        self.variables = [*(average for average, _ in self._pairs), self._num_updates]

    def update(self) -> None:
        """Move the averages towards the weights. Call it in replica context, after each step."""
        done = tf.cast(self._num_updates.value, tf.float32)
        share = 1.0 - tf.minimum(self._decay, (1.0 + done) / (10.0 + done))

        def move(average: Any, value: Any, share: Any) -> None:
            average.assign_add(tf.cast(share, average.dtype) * (value - average))

        def on_all(strategy: Any, share: Any) -> None:
            for average, variable in self._pairs:
                strategy.extended.update(average.value, move, args=(variable.value, share), group=False)
            count = self._num_updates.value
            strategy.extended.update(count, lambda number: number.assign_add(1), group=False)

        tf.distribute.get_replica_context().merge_call(on_all, args=(share,))

    @contextmanager
    def in_model(self, strategy: Any) -> Iterator[None]:
        """Let the model have the averages while the block runs."""
        self._exchange(strategy)
        try:
            yield
        finally:
            self._exchange(strategy)

    def _exchange(self, strategy: Any) -> None:
        with strategy.scope():
            for average, variable in self._pairs:
                value = variable.numpy()
                variable.assign(average.numpy())
                average.assign(value)


# Else the schedule would set the rate too.
FREE_RATE = (
    "let it set numbers, and set optimizer.schedule = 'constant' and optimizer.warmup_fraction = 0; or leave "
    "the callback out"
)


class SummedGradients:
    """Mixed into an optimizer of Keras that gets gradients which are already summed over the replicas.

    Keras sums after it has looked at the gradients of each replica alone. The norm of the sum, by which
    gradients are clipped, and whether it is finite, must be known before.
    """

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the next step. It can be set to a number unless a schedule sets it."""
        return super().learning_rate  # type: ignore[misc]

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        if callable(rate) or not isinstance(self.learning_rate, keras.Variable):
            raise ConfigError(
                "a callback sets the learning rate" + (" to a schedule" if callable(rate) else ""),
                FREE_RATE,
            )
        super(SummedGradients, type(self)).learning_rate.fset(self, rate)  # type: ignore[misc]

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars


class WeightUpdate:
    """Applies gradients to the weights of a model: sums, clips, and scales the updates of each layer."""

    def __init__(
        self, model: Any, optimizer: Any, *, clip_norm: float | None, first_layer_factor: float
    ) -> None:
        self._optimizer = optimizer
        self._variables = model.trainable_variables
        self._clip_norm = clip_norm
        self._factors = rate_factors(model, first_layer_factor) if first_layer_factor < 1 else None

    def __call__(self, gradients: Sequence[Any]) -> Any:
        """Update the weights once. Call it in replica context.

        Args:
            gradients: of this replica's part of the (scaled) loss, one for each trainable variable; None for
                a variable on which the loss does not depend.

        Returns:
            The L2 norm of the gradient of the global batch, before it is clipped: float32. Infinite or not a
            number if float16 overflowed; then the weights stay as they are.
        """
        context = tf.distribute.get_replica_context()
        indices = [index for index, gradient in enumerate(gradients) if gradient is not None]
        variables = [self._variables[index] for index in indices]
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, [gradients[index] for index in indices])
        scale = tf.cast(getattr(self._optimizer, "dynamic_scale", 1.0), tf.float32)
        norm = tf.linalg.global_norm(summed)
        if self._clip_norm is not None:
            summed, _ = tf.clip_by_global_norm(summed, self._clip_norm * scale, norm)
        if self._factors is None:
            self._optimizer.apply(summed, variables)
        else:
            before = [tf.identity(variable.value) for variable in variables]
            self._optimizer.apply(summed, variables)
            factors = [self._factors[index] for index in indices]
            context.merge_call(_shorten_updates, args=([v.value for v in variables], before, factors))
        return norm / scale


def _shorten_updates(strategy: Any, variables: list[Any], before: list[Any], factors: list[float]) -> None:
    """Undo a part of each update. A scaled gradient would not do: Adam divides by its size."""

    def shorten(variable: Any, old: Any, factor: float) -> None:
        variable.assign(old + factor * (variable - old))

    for variable, old, factor in zip(variables, before, factors, strict=True):
        if factor < 1:
            strategy.extended.update(variable, shorten, args=(old, factor), group=False)
