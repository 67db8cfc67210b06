"""Changes of a model before it trains: frozen layers, the momentum of batch normalisation, initial weights.

Each is told in the result of the run. What changes the model is in the wing of its framework.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from shardmill.infra.errors import ConfigError
from shardmill.infra.readable import counted, first_of

BACKBONE = "backbone"  # the layer of a model of shardmill.training.tensorflow.models.detector: its backbone
Freeze = Literal["none", "backbone"] | int | Sequence[str]
_NAMED = 3
# Momenta up to this one catch up in fifty steps, and are never lowered in a run that has as many.
_HARMLESS = 0.9
# The start counts less than e^-10 at the end of an epoch, and less than e^-5 at the end of a very short run.
_SPANS_AN_EPOCH = 10
_SPANS_A_RUN = 5


@dataclass(frozen=True, slots=True)
class Frozen:
    """The frozen part of a model.

    Attributes:
        num_layers: the number of its layers that have weights.
        num_parameters: their weights.
        of_parameters: the weights of the whole model.
    """

    num_layers: int
    num_parameters: int
    of_parameters: int

    def __str__(self) -> str:
        return (
            f"frozen: {counted(self.num_layers, 'layer')} with {self.num_parameters:,} of "
            f"{self.of_parameters:,} parameters"
        )


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

    Evaluation and export use moving averages of the moments of training batches. With momentum m an average
    spans about 1 / (1 - m) steps, and after n steps its random start still counts m^n. ``keras.applications``
    has momenta of 0.99 to 0.9997, for runs of a million steps. In a short run their averages describe a model
    that no longer exists.

    In epochs of fewer than 100 steps it is 0.9, whose averages span ten steps: shorter ones would be noise.
    """
    harmless = min(_HARMLESS, 1 - _SPANS_A_RUN / max(total_steps, _SPANS_A_RUN))
    return max(harmless, 1 - _SPANS_AN_EPOCH / max(steps_per_epoch, _SPANS_AN_EPOCH))


@dataclass(frozen=True, slots=True)
class TakenWeights:
    """The layers of a model that took their initial weights from a file: one rule for both frameworks.

    The file must give weights to every layer but the head, which depends on the classes, unless
    ``model.partial_weights`` is set. A layer takes all its arrays, or keeps its random weights.

    Attributes:
        path: the file.
        taken: names of the layers that did, in the order of the network.
        missing: names of those that did not, and keep random weights.
        num_unused: arrays of the file that have no place in the model.
    """

    path: str
    taken: Sequence[str]
    missing: Sequence[str]
    num_unused: int = 0

    def check(self, head: Collection[str], *, partial: bool, unused: bool = True) -> TakenWeights:
        """Check that all layers but the head took their weights, and return this.

        Args:
            head: names of the layers that depend on the classes.
            partial: ``model.partial_weights``.
            unused: arrays without a place are an error, too.

        Raises:
            ConfigError: others did not either, or none did.
        """
        others = [name for name in self.missing if name not in head or not self.taken]
        if not self.taken or (others and not partial):
            layers = counted(len(self.taken) + len(self.missing), "layer")
            raise ConfigError(
                f"model.weights = {self.path!r}: {len(others)} of {layers} of the model are not in it, or "
                f"have other shapes there: {first_of(others, _NAMED)}",
                "give the weights of a model of the same layers and data.image_channels"
                + (
                    ", or set model.partial_weights = true: these layers then begin with random weights"
                    if self.taken
                    else ""
                ),
            )
        if self.num_unused and unused and not partial:
            raise ConfigError(
                f"model.weights = {self.path!r}: it is of a larger model: it has "
                f"{counted(self.num_unused, 'array')} more than this one",
                "give the weights of a model of the same layers, or set model.partial_weights = true to take "
                "those that fit",
            )
        return self

    def check_frozen(self, frozen: Collection[str]) -> None:
        """Check that no frozen layer, by its name, would keep its random weights.

        Raises:
            ConfigError: one would.
        """
        kept = [name for name in self.missing if name in frozen]
        if kept:
            raise ConfigError(
                f"model.freeze would keep random weights: {self.path} has none for {first_of(kept, _NAMED)}",
                "freeze fewer layers, or give the weights of a model that has them",
            )

    def __str__(self) -> str:
        num_layers = len(self.taken) + len(self.missing)
        kept = f"; random: {first_of(self.missing, _NAMED)}" if self.missing else ""
        return f"weights: {len(self.taken)} of {counted(num_layers, 'layer')} come from {self.path}{kept}"
