"""The accounting of all inputs: it must add up, and few enough inputs may be quarantined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardmill.infra.errors import AccountingError, DataError, FailureBudgetExceeded
from shardmill.infra.format.contract import (
    DUPLICATE,
    FILTERED,
    INPUTS_SCHEMA,
    QUARANTINED,
    RECORD,
    Accounting,
    Shard,
)

_REASONS_SHOWN = 5


@dataclass(frozen=True)
class Counts:
    """Counts of the outcomes of all inputs.

    Attributes:
        accounting: number of inputs by outcome.
        reasons: reason -> number of quarantined inputs, the most frequent first.
    """

    accounting: Accounting
    reasons: dict[str, int]


def account(inputs: pa.Table | Iterable[pa.RecordBatch]) -> Accounting:
    """Count the outcomes of all inputs (INPUTS_SCHEMA).

    Raises:
        AccountingError: an input has no outcome, an unknown one, or two rows.
    """
    counts: Counter[str] = Counter()
    last: str | None = None
    for batch in inputs.to_batches() if isinstance(inputs, pa.Table) else inputs:
        counts += _count(batch.column("outcome"))
        uris = batch.column("uri")
        if len(uris):
            _check_order(uris, last)
            last = uris[-1].as_py()
    if unknown := set(counts) - {RECORD, DUPLICATE, FILTERED, QUARANTINED}:
        raise AccountingError(f"inputs with unknown outcomes: {unknown}")
    return Accounting(
        num_inputs=counts.total(),
        num_records=counts[RECORD],
        num_duplicates=counts[DUPLICATE],
        num_filtered=counts[FILTERED],
        num_quarantined=counts[QUARANTINED],
    )


def account_and_write(inputs: Iterable[pa.RecordBatch], stream: BinaryIO) -> Counts:
    """Count the outcomes of all inputs and the reasons of quarantined ones, and write the rows as Parquet.

    Args:
        inputs: INPUTS_SCHEMA, all rows in order.
        stream: receives the Parquet file.

    Raises:
        AccountingError: as ``account``.
    """
    reasons: Counter[str] = Counter()
    with pq.ParquetWriter(stream, INPUTS_SCHEMA, compression="zstd") as writer:

        def seen() -> Iterator[pa.RecordBatch]:
            for batch in inputs:
                writer.write_batch(batch)
                reasons.update(_quarantined(batch))
                yield batch

        accounting = account(seen())
    return Counts(accounting, _most_frequent_first(reasons))


def _check_order(uris: pa.Array, last: str | None) -> None:
    rises = last is None or last.encode() < str(uris[0].as_py()).encode()
    if not rises or not (len(uris) < 2 or pc.all(pc.less(uris[:-1], uris[1:])).as_py()):
        raise AccountingError("an input has more than one row, or the rows are not sorted by URI")


def quarantine_reasons(inputs: pa.Table | Iterable[pa.RecordBatch]) -> dict[str, int]:
    """Return reason -> number of quarantined inputs, the most frequent first."""
    counts: Counter[str] = Counter()
    for batch in inputs.to_batches() if isinstance(inputs, pa.Table) else inputs:
        counts += _quarantined(batch)
    return _most_frequent_first(counts)


def _quarantined(batch: pa.RecordBatch) -> Counter[str]:
    return _count(batch.filter(pc.equal(batch.column("outcome"), QUARANTINED)).column("reason"))


def _most_frequent_first(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def is_refused(counts: Counts, budget: float) -> bool:
    """Tell whether ``check_budget`` refuses these inputs."""
    return not counts.accounting.num_records or _lost_share(counts.accounting) > budget


def check_budget(counts: Counts, budget: float, rows: str) -> None:
    """Check that few enough inputs are quarantined, and that there is a record at all.

    Args:
        counts: number of inputs by outcome.
        budget: fraction of the inputs that may be quarantined; filtered inputs do not count.
        rows: where every input and its reason are, for the error.

    Raises:
        FailureBudgetExceeded: more inputs are quarantined. DataError: no input became a record.
    """
    accounting, reasons = counts.accounting, counts.reasons
    usable = accounting.num_inputs - accounting.num_filtered
    lost = accounting.num_quarantined
    why = ", ".join(f"{reason} ({count:,})" for reason, count in list(reasons.items())[:_REASONS_SHOWN])
    if _lost_share(accounting) > budget:
        raise FailureBudgetExceeded(
            f"{lost:,} of {usable:,} inputs cannot be used ({lost / usable:.2%}; the failure budget is "
            f"{budget:.2%}): {why}; nothing was published",
            f"every input and its reason: {rows}; mend or remove them, name them in filter.ignore, "
            f"or allow more with --failure-budget",
        )
    if not accounting.num_records:
        raise DataError(
            f"no record came of {accounting.num_inputs:,} inputs: "
            f"{accounting.num_filtered:,} filtered, "
            f"{lost:,} quarantined{f' ({why})' if why else ''}; nothing was published",
            f"every input and its reason: {rows}; look at the settings of [prepare.filter]",
        )


def _lost_share(accounting: Accounting) -> float:
    usable = accounting.num_inputs - accounting.num_filtered
    return accounting.num_quarantined / usable if usable else 0.0


def check_shards(shards: list[Shard], accounting: Accounting) -> None:
    """Check that the shards hold as many records as the inputs account for.

    Raises:
        AccountingError: they do not.
    """
    held = sum(shard.num_examples for shard in shards)
    if held != accounting.num_records:
        raise AccountingError(
            f"the shards hold {held} records, the inputs account for "
            f"{accounting.num_records}; nothing was published",
            "this is a defect of Shardmill, please report it",
        )


def _count(column: pa.Array) -> Counter[str]:
    counted = pc.value_counts(column).to_pylist() if len(column) else []
    return Counter({str(entry["values"]): int(entry["counts"]) for entry in counted})
