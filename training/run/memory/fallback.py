"""Divide a step that does not fit into memory into more parts, with the same global batch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from shardmill.infra import progress as events
from shardmill.infra.errors import ConfigError, OutOfMemory
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.ranks.peers import Peers
from shardmill.training.run.files.settled import Settled, read_settled, settle_again, settled_by

T = TypeVar("T")

_MESSAGE_CHARACTERS = 200


def does_not_fit(said: str) -> OutOfMemory:
    """Return the error of a step that found no memory; ``said``: the framework's message."""
    first = (said.strip().splitlines() or [""])[0]
    return OutOfMemory(
        f"a training step does not fit into memory: {first[:_MESSAGE_CHARACTERS]}",
        "lower data.global_batch_size, or set run.accumulate_steps to take each step in parts",
    )


def within_memory(
    config: TrainConfig, rows: int, attempt: Callable[[TrainConfig], T], remember: Callable[[int], None]
) -> T:
    """Train, and after each step that does not fit again, from the last checkpoint with more parts a step.

    Args:
        config: the configuration of the run.
        rows: the examples of a step on one replica.
        attempt: trains with a configuration; it must not leave anything in memory where it fails.
        remember: notes the number of parts for later processes of the run.

    Raises:
        OutOfMemory: a step does not fit in any number of parts.
    """
    while True:
        try:
            return attempt(config)
        except OutOfMemory as error:
            number = more_parts(config.run.accumulate_steps, rows, config.augment)
            if number is None:
                raise
            said = error.message
        gc.collect()  # free what the failed attempt held
        events.log(
            f"{said}; going on with run.accumulate_steps = {number} and the same global batch",
            level="warning",
        )
        remember(number)
        config = config.model_copy(update={"run": config.run.model_copy(update={"accumulate_steps": number})})


def settle_parts(
    config: TrainConfig,
    settled: Settled,
    run_dir: Path,
    rows: int,
    ranks: Peers,
    attempt: Callable[[TrainConfig], T],
) -> tuple[T, Settled]:
    """Train ``within_memory``, and note the number of parts in run.json.

    Several ranks would have to agree on the number: they end with OutOfMemory, and are started again by
    those who watch them (``settle_parts_of_ranks``).

    Returns:
        What ``attempt`` returned, and what the run has settled.
    """
    if ranks.num_ranks > 1:
        return attempt(config), settled

    def remember(number: int) -> None:
        nonlocal settled
        settled = replace(settled, accumulate_steps=number)
        settle_again(run_dir, settled)

    return within_memory(config, rows, attempt, remember), settled


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
