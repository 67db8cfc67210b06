"""Does everything add up, and is it good enough to publish?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.contract import DUPLICATE, FILTERED, INPUTS_SCHEMA, QUARANTINED, RECORD, Accounting, Shard
from infra.errors import AccountingError, DataError, FailureBudgetExceeded

_REASONS_SHOWN = 5


def account(inputs: pa.Table | Iterable[pa.RecordBatch]) -> Accounting:
    """Count the outcomes of all inputs (INPUTS_SCHEMA).

    Raises:
        AccountingError: an input has no outcome, or an unknown one, or two rows.
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


def account_and_write(
    inputs: Iterable[pa.RecordBatch], stream: BinaryIO
) -> tuple[Accounting, dict[str, int]]:
    """Count the outcomes of all inputs and the reasons of quarantined ones, and write the rows as Parquet.

    Args:
        inputs: INPUTS_SCHEMA, all rows in order.
        stream: where to.

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
    return accounting, _most_frequent_first(reasons)


def _check_order(uris: pa.Array, last: str | None) -> None:
    rises = last is None or last.encode() < str(uris[0].as_py()).encode()
    if not rises or not (len(uris) < 2 or pc.all(pc.less(uris[:-1], uris[1:])).as_py()):
        raise AccountingError("an input has more than one row, or the rows are not sorted by URI")


def quarantine_reasons(inputs: pa.Table | Iterable[pa.RecordBatch]) -> dict[str, int]:
    """Reason -> number of quarantined inputs, the most frequent first."""
    counts: Counter[str] = Counter()
    for batch in inputs.to_batches() if isinstance(inputs, pa.Table) else inputs:
        counts += _quarantined(batch)
    return _most_frequent_first(counts)


def _quarantined(batch: pa.RecordBatch) -> Counter[str]:
    return _count(batch.filter(pc.equal(batch.column("outcome"), QUARANTINED)).column("reason"))


def _most_frequent_first(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def check_budget(accounting: Accounting, reasons: dict[str, int], budget: float, rows: str) -> None:
    """Are few enough inputs quarantined, and is there a record at all?

    Args:
        accounting: of all inputs.
        reasons: reason -> number of quarantined inputs.
        budget: fraction of the inputs, filtered ones apart, that may be quarantined.
        rows: where the rows of all inputs are, for the error.

    Raises:
        FailureBudgetExceeded: more are. DataError: no input became a record.
    """
    usable = accounting.num_inputs - accounting.num_filtered
    lost = accounting.num_quarantined
    why = ", ".join(f"{reason} ({count:,})" for reason, count in list(reasons.items())[:_REASONS_SHOWN])
    if usable and lost / usable > budget:
        raise FailureBudgetExceeded(
            f"{lost:,} of {usable:,} inputs cannot be used ({lost / usable:.2%}; the failure budget is "
            f"{budget:.2%}): {why}; nothing was published",
            f"every input and its reason: {rows}; mend or remove them, name them in filter.ignore, "
            f"or allow more with --failure-budget",
        )
    if not accounting.num_records:
        raise DataError(
            f"none of {accounting.num_inputs:,} inputs became a record: "
            f"{accounting.num_filtered:,} filtered, "
            f"{lost:,} quarantined{f' ({why})' if why else ''}; nothing was published",
            f"every input and its reason: {rows}; look at the settings of [prepare.filter]",
        )


def check_shards(shards: list[Shard], accounting: Accounting) -> None:
    """Do the shards hold the records that the inputs account for?

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
