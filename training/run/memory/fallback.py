"""Divide a step that does not fit into memory into more parts, with the same global batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shardmill.infra import progress as events
from shardmill.infra.errors import ConfigError, OutOfMemory
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.ranks.peers import Peers
from shardmill.training.run.files.settled import Settled, read_settled, settle_again, settled_by

_MESSAGE_CHARACTERS = 200


def does_not_fit(said: str) -> OutOfMemory:
    """Return the error of a step that found no memory; ``said``: the framework's message."""
    first = (said.strip().splitlines() or [""])[0]
    return OutOfMemory(
        f"a training step does not fit into memory: {first[:_MESSAGE_CHARACTERS]}",
        "lower data.global_batch_size, or set run.accumulate_steps to take each step in parts",
    )


class MoreParts:
    """The configurations of the attempts of a run, each with more parts a step than the one before."""

    def __init__(self, config: TrainConfig, settled: Settled, run_dir: Path, rows: int, ranks: Peers) -> None:
        """Begin with the parts that the settings ask for.

        Args:
            config: the configuration of the run.
            settled: what it has settled.
            run_dir: its folder.
            rows: the examples of a step on one replica.
            ranks: the ranks that train together.
        """
        self.config = config
        self.settled = settled
        self._run_dir = run_dir
        self._rows = rows
        self._ranks = ranks

    def after(self, error: OutOfMemory) -> None:
        """Take more parts from now on, and note their number in run.json.

        Several ranks would have to agree on the number: they end, and are started again by those who watch
        them (``settle_parts_of_ranks``).

        Raises:
            OutOfMemory: a step does not fit in any number of parts, or there are several ranks.
        """
        run, augment = self.config.run, self.config.augment
        number = more_parts(run.accumulate_steps, self._rows, augment) if self._ranks.num_ranks == 1 else None
        if number is None:
            raise error
        events.log(
            f"{error.message}; going on with run.accumulate_steps = {number} and the same global batch",
            level="warning",
        )
        self.settled = replace(self.settled, accumulate_steps=number)
        settle_again(self._run_dir, self.settled)
        self.config = self.config.model_copy(
            update={"run": run.model_copy(update={"accumulate_steps": number})}
        )


def settle_parts_of_ranks(config: TrainConfig, run_dir: Path, num_ranks: int) -> int | None:
    """Note in run.json that ranks take each step in more parts, since one did not fit into memory.

    Args:
        config: the configuration of the run.
        run_dir: the folder of the run.
        num_ranks: the ranks that share a step.

    Returns:
        The number of parts; None: no number divides the rows of every rank.
    """
    settled = read_settled(run_dir) or settled_by(config)
    parts = settled.accumulate_steps or config.run.accumulate_steps
    size = settled.with_batch_size(config).data.batch_size
    rows, rest = divmod(size, num_ranks)
    if rest:
        number = _more_parts_of_unequal(parts, size, num_ranks, config.augment)
    else:
        number = more_parts(parts, rows, config.augment)
    if number is not None:
        settle_again(run_dir, replace(settled, accumulate_steps=number))
    return number


def _more_parts_of_unequal(parts: int, size: int, num_ranks: int, augment: AugmentSettings) -> int | None:
    """Return the next number of parts for ranks that cannot take the same number of rows.

    Their rows are multiples of a part's (``shardmill.training.run.sharing.division``).
    """
    for number in range(2 * parts, size // num_ranks + 1):
        unit = number * (2 if augment.mixes else 1)
        if size % unit == 0 and size >= unit * num_ranks:
            return number
    return None


def more_parts(parts: int, rows: int, augment: AugmentSettings) -> int | None:
    """Return the next number of parts, at least twice ``parts``; None: a part cannot be smaller.

    Args:
        parts: the parts of a step now.
        rows: the examples of a step on one replica, which the parts must divide.
        augment: MixUp and CutMix need an even number of examples in a part.
    """
    for number in range(2 * parts, rows + 1):
        if rows % number == 0 and _fits(augment, rows // number):
            return number
    return None


def _fits(augment: AugmentSettings, rows: int) -> bool:
    try:
        augment.check_pairs(rows)
    except ConfigError:
        return False
    return True
