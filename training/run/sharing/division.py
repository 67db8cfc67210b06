"""Divide the global batch among the ranks (``ranks.shares``). No framework.

The order of the records does not depend on the division, and the weights of a step's rows add up to 1 over
all ranks. So any division gives the gradient of the global batch, and a run may go on with another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.config import TrainConfig
from shardmill.training.order import rank_slice, shares_of_speed
from shardmill.training.ranks.peers import Peers

SHARES_FILE = "logs/ranks/shares.json"
# Equal shares stay if measured ones would shorten a step by less: speeds are never measured exactly.
_LEAST_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class Division:
    """The rows of each global batch that each rank takes, one rank's after the other's.

    Attributes:
        rows: the number of rows of each rank.
        seconds_per_example: time (seconds) an example of each rank, as measured; None: not measured.
    """

    rows: tuple[int, ...]
    seconds_per_example: tuple[float, ...] | None = None

    def slice_of(self, rank: int) -> slice:
        """Return the rows of a rank."""
        start = sum(self.rows[:rank])
        return slice(start, start + self.rows[rank])


def planned_division(config: TrainConfig, num_ranks: int, unit: int) -> Division:
    """Return the division that the settings give: equal, unless ``ranks.shares`` is a list.

    Args:
        config: the configuration of the run.
        num_ranks: the number of ranks.
        unit: the rows of each rank are a multiple of it, if the global batch is.

    Raises:
        ConfigError: the list does not fit the ranks.
    """
    shares, size = config.ranks.shares, config.data.batch_size
    if isinstance(shares, str) or num_ranks == 1:
        return equal_division(size, num_ranks, unit)
    return given_division(shares, size, num_ranks, unit)


def unit_of_rows(config: TrainConfig, num_local_replicas: int = 1) -> int:
    """Return the number by which the rows of a rank must be divisible: devices × parts × pairs."""
    pairs = 2 if config.augment.mixes else 1
    return num_local_replicas * config.run.accumulate_steps * pairs


def given_division(shares: Sequence[int], global_batch_size: int, num_ranks: int, unit: int = 1) -> Division:
    """Return the division in proportion to ``shares``, one for each rank.

    Args:
        shares: a whole number for each rank.
        global_batch_size: rows to divide.
        num_ranks: the number of ranks.
        unit: the rows of each rank are a multiple of it, if the global batch is.

    Raises:
        ConfigError: the shares do not fit the ranks, or leave one without rows.
    """
    unit, num_units = _units(global_batch_size, num_ranks, unit)
    try:
        slices = [rank_slice(num_units, rank, num_ranks, shares) for rank in range(num_ranks)]
    except UsageError as error:
        raise ConfigError(
            f"ranks.shares = {list(shares)}: {error.message}", error.remedy or "set it to 'auto'"
        ) from error
    return Division(tuple(unit * (part.stop - part.start) for part in slices))


def equal_division(global_batch_size: int, num_ranks: int, unit: int = 1) -> Division:
    """Return the division into parts that differ by ``unit`` rows at most, if it divides the global batch."""
    unit, num_units = _units(global_batch_size, num_ranks, unit)
    slices = [rank_slice(num_units, rank, num_ranks) for rank in range(num_ranks)]
    return Division(tuple(unit * (part.stop - part.start) for part in slices))


def _units(global_batch_size: int, num_ranks: int, unit: int) -> tuple[int, int]:
    """Return the rows that stay together, and how many times the global batch has them.

    They are single rows if ``unit`` does not divide the global batch, or leaves a rank without any.
    """
    unit = unit if global_batch_size % unit == 0 and global_batch_size >= unit * num_ranks else 1
    return unit, global_batch_size // unit


@dataclass(frozen=True, slots=True)
class MeasuredRank:
    """A rank whose speed can be measured.

    Attributes:
        kind: the name of its device; devices of one name count as equally fast.
        place: the host, and which of its devices.
        seconds_per_example: measures the time of all ranks for an example (seconds), by rank, given the rows
            of this one. Every rank must call it.
    """

    kind: str
    place: str
    seconds_per_example: Callable[[int], Sequence[float]]


def check_rows(config: TrainConfig, num_ranks: int, num_local_replicas: int) -> int:
    """Check that each replica has a row for every part of a step, and each mixed row a partner beside it.

    Returns:
        The rows of the replica that takes fewest.

    Raises:
        ConfigError: the global batch is too small, or cannot be divided so; or ``ranks.shares`` do not fit
            the ranks.
    """
    size, parts = config.data.batch_size, config.run.accumulate_steps
    replicas = num_ranks * num_local_replicas
    if num_local_replicas > 1 and (rest := size % replicas):
        lower, upper = size - rest, size - rest + replicas
        near = f"{lower} or {upper}" if lower else str(upper)
        raise ConfigError(
            f"data.global_batch_size = {size} cannot be divided among {replicas} devices",
            f"set it to {near}, or run.devices to 'one'",
        )
    division = planned_division(config, num_ranks, unit_of_rows(config, num_local_replicas))
    rows = [number // num_local_replicas for number in division.rows]
    if min(rows) < parts:
        in_parts = f" in {parts} parts (run.accumulate_steps)" if parts > 1 else ""
        raise ConfigError(
            f"data.global_batch_size = {size} has too few rows for {counted(replicas, 'device')}{in_parts}",
            f"set it to at least {replicas * parts}",
        )
    for number in rows:
        config.augment.check_pairs(number)
    return min(rows)


def measured_division(
    planned: Division, config: TrainConfig, unit: int, ranks: Peers, own: MeasuredRank, run_dir: Path
) -> Division:
    """Return the division by the speed of the ranks, if the settings ask for it; else ``planned``.

    The speeds are measured once for the same devices, and kept in ``logs/ranks/shares.json`` of the run. With
    ``ranks.shares = "auto"`` devices of the same name count as equally fast. Every rank must call this.

    Args:
        planned: the division that the settings give.
        config: the configuration of the run.
        unit: the rows of each rank shall be a multiple of it.
        ranks: the ranks.
        own: this rank.
        run_dir: the folder of the run.
    """
    setting, size = config.ranks.shares, config.data.batch_size
    if ranks.num_ranks == 1 or size % unit:
        return planned
    if not wants_measuring(setting, ranks.all_values(own.kind)):
        return planned
    places = ranks.all_values(f"{own.place}: {own.kind}")
    basis = {"devices": places, "global_batch_size": size, "unit": unit}
    seconds = _kept(run_dir, basis, ranks)
    if seconds is None:
        events.log("measuring the speed of each rank")
        seconds = tuple(own.seconds_per_example(planned.rows[ranks.rank]))
        if ranks.is_first:
            kept = dump_json({**basis, "seconds_per_example": seconds}, indent=1)
            Storage.at(run_dir).write_atomic(SHARES_FILE, kept.encode())
    division = division_of_speed(seconds, size, unit)
    events.log(f"rows of each global batch by rank: {', '.join(map(str, division.rows))}")
    return division


def wants_measuring(shares: str | Sequence[int], devices: Sequence[str]) -> bool:
    """Return whether the speeds are to be measured.

    Args:
        shares: ``ranks.shares``.
        devices: the name of the device of each rank.
    """
    return shares == "measured" or (shares == "auto" and len(set(devices)) > 1)


def division_of_speed(seconds: tuple[float, ...], global_batch_size: int, unit: int = 1) -> Division:
    """Return the division that shortens a step most; equal, if that shortens it by less than a tenth.

    Args:
        seconds: the measured time for an example, by rank.
        global_batch_size: rows to divide, a multiple of ``unit``.
        unit: the rows of each rank are a multiple of it.
    """
    units = shares_of_speed(seconds, global_batch_size // unit)
    balanced = tuple(unit * number for number in units)
    equal = equal_division(global_batch_size, len(seconds), unit).rows
    gained = _slowest(balanced, seconds) <= (1 - _LEAST_GAIN) * _slowest(equal, seconds)
    return Division(balanced if gained else equal, seconds)


def _slowest(rows: tuple[int, ...], seconds: tuple[float, ...]) -> float:
    return max(count * each for count, each in zip(rows, seconds, strict=True))


def _kept(run_dir: Path, basis: dict[str, Any], ranks: Peers) -> tuple[float, ...] | None:
    """Return the speeds that an earlier process of the run measured on the same devices, if any."""
    found = None
    folder = Storage.at(run_dir)
    if ranks.is_first and folder.exists(SHARES_FILE):
        kept = json.loads(folder.read_bytes(SHARES_FILE))
        if {name: kept[name] for name in basis} == basis:
            found = kept["seconds_per_example"]
    found = ranks.value_of_first(found)
    return None if found is None else tuple(float(each) for each in found)
