"""Find the files that have not changed since the previous version, and bring together the facts of all.

A file is known if its URI, size and time of change are the same, and those of its mask if it has one. Its
facts come from the records and inputs of the previous version; so does the reason why it could not be used,
unless trying again may help. If images are now stored or filtered in another way, no file is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.encode.blocks import DigestList, KnownContents
from shardmill.beam_jobs.encode.facts import features_found
from shardmill.beam_jobs.encode.stage import EncodedFiles
from shardmill.beam_jobs.reasons import PURGED, SAME_SCENE
from shardmill.beam_jobs.reuse.previous import PreviousVersion, retried_reasons
from shardmill.beam_jobs.schemas import (
    DECODE,
    FILTER,
    IMAGE_NAMES,
    MASK_COLUMNS,
    MASK_SHAPES,
    PLACED_FACTS_SCHEMA,
    Status,
    has_masks,
)
from shardmill.beam_jobs.tables import release_memory
from shardmill.beam_jobs.tables.columns import code_texts, find_ids, mask_of, one_chunk, places_in, take_rows
from shardmill.beam_jobs.tables.features import PREFIX, feature_columns, features_of, with_features
from shardmill.beam_jobs.tables.ids import contents_of, digest_bytes, hex_bytes, record_ids
from shardmill.infra.codecs.formats import GROUP_OF_FILE
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.contract import FILTERED, QUARANTINED
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import MASK_SHA256, MASK_URI
from shardmill.infra.storage.filesystem import Storage


@dataclass(frozen=True)
class KnownFiles:
    """The files whose facts the previous version knows.

    Attributes:
        mask: bool [files to read], whether a file is known.
        facts: PLACED_FACTS_SCHEMA and columns of features, a row for each known file.
    """

    mask: npt.NDArray[np.bool_]
    facts: pa.Table


def find_known_files(
    previous: PreviousVersion | None, references: pa.Table, purged: DigestList, config: PrepareConfig
) -> KnownFiles:
    """Find the files that need not be read.

    Args:
        previous: the version that may know them; None if there is none.
        references: REFERENCE_SCHEMA.
        purged: contents that must not come back: such a file is read, unless it is known to be purged.
        config: settings of this run.
    """
    features = features_found(config)
    inputs = previous.read_inputs() if previous is not None and previous.reuse.uris else None
    if previous is None or inputs is None:
        nothing = with_features(PLACED_FACTS_SCHEMA, features).empty_table()
        return KnownFiles(np.zeros(references.num_rows, np.bool_), nothing)
    retried = retried_reasons(previous.version.manifest, config, previous.reuse.new_rules)
    rows, files = _same_files(inputs, references, purged)
    ids = record_ids(hex_bytes(pc.fill_null(rows["record_id"], "0" * 16), 8))
    places, found = find_ids(previous.ids, ids)
    has_record = mask_of(pc.is_valid(rows["record_id"])) & found
    has_record[has_record] = previous.valid[places[has_record]]
    if has_masks(references) and len(previous.ids):
        now = take_rows(references, files)
        has_record &= _have_same_masks(inputs, take_rows(previous.records, places), now)
    del inputs  # free it: it is as large as the facts
    known = has_record | _lost_for_good(rows, retried)
    places = pa.array(places[known], mask=~has_record[known])
    taken = take_rows(previous.records, places)
    facts = _facts(taken, rows.filter(pa.array(known)), has_record[known], features)
    mask = np.zeros(references.num_rows, np.bool_)
    mask[files[known]] = True
    return KnownFiles(mask, facts)


def _have_same_masks(inputs: pa.Table, records: pa.Table, references: pa.Table) -> npt.NDArray[np.bool_]:
    """Return whether files have the mask that their record has, unchanged: bool [N].

    Args:
        inputs: INPUTS_SCHEMA, with a row for each mask.
        records: the record of each file: PREVIOUS_RECORDS_SCHEMA and columns of features.
        references: REFERENCE_SCHEMA and MASK_COLUMNS, a row for each file that has not changed.
    """
    uri, size_bytes, mtime_ns = (references[field.name] for field in MASK_COLUMNS)
    if MASK_SHAPES.name in references.schema.names:
        drawn = (hashlib.sha256(shapes).hexdigest() for shapes in references[MASK_SHAPES.name].to_pylist())
        digests = pa.chunked_array([pa.array(drawn, pa.string())])
        return mask_of(
            pc.and_(
                pc.equal(records[PREFIX + MASK_URI], uri), pc.equal(records[PREFIX + MASK_SHA256], digests)
            )
        )
    then = take_rows(inputs, one_chunk(places_in(uri, inputs["uri"])))
    same = pc.equal(records[PREFIX + MASK_URI], uri)
    unchanged = pc.and_(pc.equal(then["size_bytes"], size_bytes), pc.equal(then["mtime_ns"], mtime_ns))
    if "mask_container" in references.schema.names:
        # A mask in the row of its image has no row of its own in the inputs.
        in_row = pc.and_(pc.is_null(then["uri"]), pc.equal(mtime_ns, references["mtime_ns"]))
        unchanged = pc.or_kleene(unchanged, in_row)
    return mask_of(pc.fill_null(pc.and_(same, unchanged), False))


def write_known_contents(spool: Storage, previous: PreviousVersion | None, purged: DigestList) -> None:
    """Write the contents that workers need not decode: those of the previous version, and purged ones."""
    KnownContents(_stored_contents(previous), purged).write(spool)


def _stored_contents(previous: PreviousVersion | None) -> DigestList:
    """Return the contents whose stored image the previous version holds, if that is still valid."""
    if previous is None or not previous.reuse.contents:
        return DigestList()
    records = previous.records
    if not previous.valid.all():
        records = records.filter(pa.array(previous.valid))
    if PREFIX + MASK_SHA256 in records.schema.names:
        return DigestList.of(contents_of(records))
    return DigestList(digest_bytes(records["sha256"]).tobytes())  # sorted by id is sorted by digest


def _same_files(
    inputs: pa.Table, references: pa.Table, purged: DigestList
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """The rows of inputs whose files are unchanged, and the row of ``references`` of each."""
    places = places_in(references["uri"], inputs["uri"])
    files = np.flatnonzero(mask_of(pc.is_valid(places)))
    rows, now = take_rows(inputs, one_chunk(places.drop_null())), take_rows(references, files)
    same = mask_of(
        pc.and_(pc.equal(rows["size_bytes"], now["size_bytes"]), pc.equal(rows["mtime_ns"], now["mtime_ns"]))
    )
    if len(purged):
        blocked = pc.is_in(rows["sha256"], pa.array(purged.hexadecimal(), pa.string()))
        same &= ~mask_of(blocked) | mask_of(pc.equal(rows["reason"], PURGED))
    return rows.filter(pa.array(same)), files[same]


def _lost_for_good(rows: pa.Table, retried: Collection[str]) -> npt.NDArray[np.bool_]:
    """Return the files that filters or decoders left out for a reason that still holds: bool [rows]."""
    by_content = pc.is_in(rows["stage"], pa.array([FILTER, DECODE]))
    by_content = pc.or_(by_content, pc.equal(pc.fill_null(rows["reason"], ""), SAME_SCENE))
    filtered = pc.and_(pc.equal(rows["outcome"], FILTERED), by_content)
    rejected = pc.and_(pc.equal(rows["outcome"], QUARANTINED), pc.equal(rows["stage"], DECODE))
    stands = pc.invert(pc.is_in(rows["reason"], pa.array(list(retried), pa.string())))
    return mask_of(pc.and_(pc.or_(filtered, rejected), stands))


def _facts(
    taken: pa.Table, rows: pa.Table, has_record: npt.NDArray[np.bool_], features: Sequence[Feature]
) -> pa.Table:
    """Return the facts of known files: of their records, or the reason why there is none.

    Args:
        taken: PREVIOUS_RECORDS_SCHEMA and columns of features, the record of each file, or nulls.
        rows: INPUTS_SCHEMA.
        has_record: bool [rows].
        features: those that the facts have columns of.
    """
    columns = _image_columns(taken, features) | {"sha256": taken["sha256"]}
    status = np.full(len(has_record), Status.STORED_BEFORE, np.int8)
    if not has_record.all():
        lost = rows.filter(pa.array(~has_record))
        digests = [None if text is None else bytes.fromhex(text) for text in lost["sha256"].to_pylist()]
        columns["sha256"] = pc.replace_with_mask(
            taken["sha256"], pa.array(~has_record), pa.array(digests, pa.binary(32))
        )
        is_filtered = mask_of(pc.equal(lost["outcome"], FILTERED))
        status[~has_record] = np.where(is_filtered, Status.FILTERED, Status.QUARANTINED)
    columns["status"] = pa.array(status)
    for name in ("stage", "reason", "message"):
        column = one_chunk(rows[name])
        columns[name] = pc.if_else(pa.array(has_record), pa.scalar(None, pa.string()), column)
    columns["block"] = pa.nulls(len(has_record), pa.int32())
    schema = with_features(PLACED_FACTS_SCHEMA, features)
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)


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
    for name, column in _image_columns(records, features_of(facts)).items():
        columns[name] = pc.if_else(pa.array(chosen), one_chunk(column), one_chunk(facts[name]))
    return pa.table(columns).cast(facts.schema)


def _image_columns(records: pa.Table, features: Sequence[Feature]) -> dict[str, pa.ChunkedArray]:
    """Return the columns that records of the previous version share with facts.

    Args:
        records: PREVIOUS_RECORDS_SCHEMA and columns of features.
        features: those that facts have.
    """
    names = ("shard", "offset_bytes", *IMAGE_NAMES, *feature_columns(features))
    told = pc.starts_with(records["group"], GROUP_OF_FILE)  # other groups are the listing's own
    groups = pc.if_else(pc.fill_null(told, False), records["group"], pa.scalar(None, pa.string()))
    return {name: records[name] for name in names} | {"group": groups}


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
