"""The aliases of models, and every decision that moved them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmill.infra.errors import CorruptDataError, ShardmillError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases.history import list_aliases
from shardmill.training.aliases.record import AliasRecord


@dataclass(frozen=True, slots=True)
class AliasRow:
    """One alias.

    Attributes:
        name: as ``dataset@alias``.
        dataset: name of the dataset.
        holder: the run that has it; None: no run has it.
        records: every decision, the newest first.
        problem: what of its history cannot be read, and why.
    """

    name: str
    dataset: str
    holder: str | None = None
    records: Sequence[AliasRecord] = ()
    problem: str | None = None


def alias_rows(runs: Storage, dataset: str | None = None) -> list[AliasRow]:
    """Return all aliases, or one dataset's; the row of a damaged record says what is wrong with it."""
    rows = []
    try:
        for history in list_aliases(runs, dataset):
            found, holder, problem = history.read(), None, None
            try:
                current = found.current()
                holder = None if current is None else current.run
            except CorruptDataError as error:
                problem = str(error)
            if problem is None and found.damaged:
                problem = " ".join(map(str, found.damaged.values()))
            rows.append(AliasRow(str(found.name), found.name.dataset, holder, found.sound[::-1], problem))
    except ShardmillError as error:  # the folder cannot be listed
        rows.append(AliasRow("aliases", dataset or "", problem=str(error)))
    return rows
