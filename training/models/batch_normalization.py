"""Let the moving statistics of batch normalisation keep up with runs of any length.

Evaluation and export use moving averages of the moments of training batches. With momentum m an average spans
about 1 / (1 - m) steps, and after n steps its random start still counts m^n. ``keras.applications`` has
momenta of 0.99 to 0.9997, for runs of a million steps. In a short run their averages describe a model that no
longer exists, and everything measured with them is wrong. So the momentum is limited by the length of the
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardmill.training.models.layers import layers_of

# Momenta up to this one catch up in fifty steps, and are never lowered in a run that has as many.
_HARMLESS = 0.9
# The start counts less than e^-10 at the end of an epoch, and less than e^-5 at the end of a very short run.
_SPANS_AN_EPOCH = 10
_SPANS_A_RUN = 5


@dataclass(frozen=True, slots=True)
class LimitedMomentum:
    """The batch normalisation of a model whose momentum was lowered.

    Attributes:
        limit: the momentum now.
        highest: the highest momentum that the model came with.
        num_layers: the number of layers that were changed.
    """

    limit: float
    highest: float
    num_layers: int

    def __str__(self) -> str:
        layers = "1 layer" if self.num_layers == 1 else f"{self.num_layers} layers"
        return (
            f"batch normalisation: the momentum of {layers} was lowered from up to {self.highest:g} to "
            f"{self.limit:g}, so that the moving statistics follow a run of this length"
        )


def momentum_limit(steps_per_epoch: int, total_steps: int) -> float:
    """Return the highest momentum whose moving statistics are right at the end of each epoch.

    In epochs of fewer than 100 steps it is 0.9, whose averages span ten steps: shorter ones would be noise.
    """
    harmless = min(_HARMLESS, 1 - _SPANS_A_RUN / max(total_steps, _SPANS_A_RUN))
    return max(harmless, 1 - _SPANS_AN_EPOCH / max(steps_per_epoch, _SPANS_AN_EPOCH))


def limit_momentum(model: Any, limit: float) -> LimitedMomentum | None:
    """Lower the momentum of every batch normalisation above ``limit``. Call it before the model is traced.

    Returns:
        What was changed; None if no layer was above the limit.
    """
    import keras

    above = [
        layer
        for layer in layers_of(model)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.momentum > limit
    ]
    if not above:
        return None
    highest = max(layer.momentum for layer in above)
    for layer in above:
        layer.momentum = limit
    return LimitedMomentum(limit, highest, len(above))
