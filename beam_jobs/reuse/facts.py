"""The facts of all files: those that were read, and those that the previous version knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.encode.stage import EncodedFiles
from shardmill.beam_jobs.release_memory import release_memory
from shardmill.beam_jobs.reuse.previous import PreviousVersion
from shardmill.beam_jobs.schemas import IMAGE_NAMES, Status
from shardmill.beam_jobs.tables.columns import find_ids, one_chunk, take_rows
from shardmill.beam_jobs.tables.features import feature_columns, features_of
from shardmill.beam_jobs.tables.ids import digest_bytes, record_ids
from shardmill.beam_jobs.tables.texts import code_texts
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.features import Feature
from shardmill.infra.storage.filesystem import Storage

_ROWS_AT_A_TIME = 1 << 20


def gather_facts(
    encoded: EncodedFiles,
    spool: Storage,
    previous: PreviousVersion | None,
    known: npt.NDArray[np.bool_],
    of_known: pa.Table,
) -> pa.Table:
    """Return the facts of all files: PLACED_FACTS_SCHEMA and columns of features, with coded texts.

    Args:
        encoded: the files that the previous version does not know.
        spool: has their facts.
        previous: the version that stores some of their contents.
        known: bool [N], which files the previous version knows.
        of_known: their facts.
    """
    read = encoded.facts(spool)
    release_memory()  # the tables of single blocks took as much again
    if previous is not None:
        read = fill_in_stored_before(read, previous)
    return code_texts(merge_facts(known, of_known, read), IMAGE_NAMES)


def fill_in_stored_before(facts: pa.Table, previous: PreviousVersion) -> pa.Table:
    """Fill in the facts of files that were read, and whose content the previous version stores.

    Args:
        facts: PLACED_FACTS_SCHEMA and columns of features.
        previous: the version that stores the contents.

    Raises:
        CorruptDataError: it does not store one of them.
    """
    is_stored_before = facts["status"].to_numpy() == Status.STORED_BEFORE
    if not is_stored_before.any():
        return facts
    wanted = record_ids(digest_bytes(facts["sha256"].filter(pa.array(is_stored_before))))
    at, found = find_ids(previous.ids, wanted)
    if not found.all():
        raise CorruptDataError(
            "a block counts on contents that the previous version does not have",
            "delete the folder spool of the dataset and run again",
        )
    places = np.zeros(len(is_stored_before), np.int64)
    places[is_stored_before] = at
    filled = []
    for start in range(0, facts.num_rows, _ROWS_AT_A_TIME):
        part = facts.slice(start, _ROWS_AT_A_TIME)
        chosen = is_stored_before[start : start + _ROWS_AT_A_TIME]
        records = take_rows(previous.records, pa.array(places[start : start + len(chosen)], mask=~chosen))
        filled.append(_filled(part, chosen, records))
    return pa.concat_tables(filled)


def _filled(facts: pa.Table, chosen: npt.NDArray[np.bool_], records: pa.Table) -> pa.Table:
    """Take the columns that records of the previous version share with facts for the chosen rows."""
    columns = {name: facts[name] for name in facts.column_names}
    for name, column in image_columns(records, features_of(facts)).items():
        columns[name] = pc.if_else(pa.array(chosen), one_chunk(column), one_chunk(facts[name]))
    return pa.table(columns).cast(facts.schema)


def image_columns(records: pa.Table, features: Sequence[Feature]) -> dict[str, pa.ChunkedArray]:
    """Return the columns that records of the previous version share with facts.

    Args:
        records: PREVIOUS_RECORDS_SCHEMA and columns of features.
        features: those that facts have.
    """
    names = ("shard", "offset_bytes", *IMAGE_NAMES, *feature_columns(features))
    return {name: records[name] for name in names}


def merge_facts(known: npt.NDArray[np.bool_], of_known: pa.Table, of_others: pa.Table) -> pa.Table:
    """Bring together the facts of all files, in their order.

    Args:
        known: bool [N], which files ``of_known`` has.
        of_known: PLACED_FACTS_SCHEMA and columns of features, the facts of the known files.
        of_others: the same of the other files.
    """
    if not known.any():
        return of_others  # merging would copy all of it
    order = np.empty(len(known), np.int64)
    order[known] = np.arange(of_known.num_rows)
    order[~known] = of_known.num_rows + np.arange(of_others.num_rows)
    return take_rows(pa.concat_tables([of_known, of_others]), order)


def mask_of(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """A column of truth values as bool [N]; null counts as false."""
    return np.asarray(pc.fill_null(values, False).to_numpy(), np.bool_)
