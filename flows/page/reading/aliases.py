"""The aliases of models, and every decision that moved them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import ShardmillError
from infra.storage.filesystem import Storage
from training.aliases.history import list_aliases
from training.aliases.record import AliasRecord


@dataclass(frozen=True, slots=True)
class AliasRow:
    """One alias.

    Attributes:
        name: as ``dataset@alias``.
        dataset: name of the data set.
        holder: the run that has it; None: no run has it.
        records: every decision, the newest first.
        problem: why its history cannot be read.
    """

    name: str
    dataset: str
    holder: str | None = None
    records: Sequence[AliasRecord] = ()
    problem: str | None = None


def alias_rows(runs: Storage, dataset: str | None = None) -> list[AliasRow]:
    """Return all aliases, or those of one data set; a damaged history becomes a row with the error."""
    rows = []
    try:
        for history in list_aliases(runs, dataset):
            name = str(history.name)
            try:
                records = history.records()
            except (ShardmillError, ValueError) as error:
                rows.append(AliasRow(name, history.name.dataset, problem=str(error)))
                continue
            moves = [record.run for record in records if record.is_move]
            holder = moves[-1] if moves else None
            rows.append(AliasRow(name, history.name.dataset, holder, records[::-1]))
    except ShardmillError as error:  # a folder that cannot name an alias ends the list
        rows.append(AliasRow("aliases", dataset or "", problem=str(error)))
    return rows


def aliases_by_run(runs: Storage, dataset: str | None = None) -> Mapping[str, Sequence[str]]:
    """Return run -> the aliases that it has."""
    found: dict[str, list[str]] = {}
    for row in alias_rows(runs, dataset):
        if row.holder is not None:
            found.setdefault(row.holder, []).append(row.name)
    return found
