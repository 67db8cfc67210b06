"""What the version before this one knows already, so that only what is new is read, decoded and written.

A file is known by its URI, size and time of change, without being read; or, once read, by its content. Of a
known file the stored form and all facts come from the earlier version; so do the reasons of those that could
not be used. What may pass (a file that could not be read) is tried again.

None of it counts where images are stored or filtered another way now, or by other libraries. Files are known
by their URIs only within one source.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.blocks import FACTS_SCHEMA
from beam_jobs.contents import PURGED, DigestList
from beam_jobs.plan import PLAN_SCHEMA, Earlier, HeldShards
from beam_jobs.plan.columns import split_codes
from beam_jobs.plan.hashing import digest_bytes, hex_bytes, hex_text, record_ids
from beam_jobs.texts import code_texts
from infra.catalog import DatasetVersion
from infra.contract import (
    FILTERED,
    IMAGE_COLUMNS,
    INDEX_SCHEMA,
    INPUTS_SCHEMA,
    QUARANTINED,
    RECORD,
    SPLITS,
    Shard,
)
from infra.errors import CorruptDataError, StorageError

_IMAGE_NAMES = [field.name for field in IMAGE_COLUMNS]

# Sorted by id: every record whose stored form can be taken over, and where it lies.
_RECORDS_SCHEMA = pa.schema(
    [
        pa.field("sha256", pa.binary(32)),
        pa.field("shard", pa.int32()),  # number in the manifest
        *(
            INDEX_SCHEMA.field(name)
            for name in ("source_bytes", "offset_bytes", "length_bytes", "label", "source_uri", "group")
        ),
        *IMAGE_COLUMNS,
    ]
)


@dataclass(frozen=True)
class Facts:
    """What is known of files, and where the stored form of each lies.

    Attributes:
        table: FACTS_SCHEMA, a row a file.
        blocks: int32 [N], the number of the block that holds the stored form; ``~shard`` where it is in that
            shard of the earlier version.
    """

    table: pa.Table
    blocks: npt.NDArray[np.int32]

    @classmethod
    def none(cls) -> Facts:
        """Of no file."""
        return cls(FACTS_SCHEMA.empty_table(), np.empty(0, np.int32))

    def coded(self) -> Facts:
        """The same, with the texts that say of each image much the same dictionary-coded."""
        return Facts(code_texts(self.table, _IMAGE_NAMES), self.blocks)

    def without_place(self) -> npt.NDArray[np.bool_]:
        """Which files have a content that the earlier version stores, and no more is known of: bool [N]."""
        return _mask(pc.and_(pc.is_null(self.table["outcome"]), pc.is_null(self.table["offset_bytes"])))


@dataclass(frozen=True)
class Reuse:
    """How much of the earlier version is still valid.

    Attributes:
        contents: images are stored and filtered just so, by the same libraries.
        uris: it is of the same source, too.
        shards: records are cut into shards just so, too.
    """

    contents: bool
    uris: bool
    shards: bool


class Parent:
    """The version that a run plans on top of.

    Args:
        version: the newest.
        reuse: how much of it is still valid.
        damaged: paths of shards from which records could not be copied.

    Attributes:
        version, reuse: as given.
    """

    def __init__(self, version: DatasetVersion, reuse: Reuse, damaged: Collection[str] = ()) -> None:
        self.version = version
        self.reuse = reuse
        present = version.present_files()
        self._present = [
            shard.path not in damaged
            and present.get(shard.path) == shard.num_bytes
            and present.get(shard.index_path) == shard.index_bytes
            for shard in version.manifest.shards
        ]

    @property
    def is_whole(self) -> bool:
        """Whether all its shards are there, as far as names, sizes, indexes and ``damaged`` tell.

        Where they are not, none is inherited: the version is written anew as a whole, which also mends this
        one, where it was written as a whole itself.
        """
        return all(self._present) and len(self._indexes[1]) == sum(s.num_examples for s in self._shards)

    @cached_property
    def _indexes(self) -> tuple[pa.Table, npt.NDArray[np.uint64]]:
        """(_RECORDS_SCHEMA, sorted by id; the ids): of all sound shards."""
        tables = [_RECORDS_SCHEMA.empty_table()]
        for number, shard in enumerate(self._shards):
            if not self._present[number]:
                continue
            try:
                index = self.version.checked_table(shard.index_path, shard.index_sha256)
            except (CorruptDataError, StorageError):
                continue  # as if the shard were not there
            tables.append(_records_of(index, number))
        records = pa.concat_tables(tables).combine_chunks()
        ids = record_ids(digest_bytes(records["sha256"]))
        order = np.argsort(ids)
        return records.take(pa.array(order)), ids[order]

    @cached_property
    def _inputs(self) -> pa.Table | None:
        """The rows of the version's inputs; None where they are damaged."""
        parts = [INPUTS_SCHEMA.empty_table()]
        try:
            parts += [
                self.version.checked_table(part.path, part.sha256) for part in self.version.manifest.inputs
            ]
        except (CorruptDataError, StorageError):
            return None
        return pa.concat_tables(parts)

    @cached_property
    def earlier(self) -> Earlier:
        """What a plan must know of this version."""
        records, ids = self._indexes
        of_shard = np.array([SPLITS.index(shard.split) for shard in self._shards], np.int8)
        splits = of_shard[records["shard"].to_numpy()] if len(ids) else np.empty(0, np.int8)
        held = self._held(splits) if self.reuse.shards and self.is_whole else None
        if not self.is_whole and self._inputs is not None:
            rows = self._inputs.filter(pc.equal(self._inputs["outcome"], RECORD))
            ids = record_ids(hex_bytes(rows["record_id"], 8))
            order = np.argsort(ids)
            ids, splits = ids[order], split_codes(rows["split"])[order]
        return Earlier(ids, splits, tuple(self.version.manifest.classes), held)

    @property
    def _shards(self) -> list[Shard]:
        return self.version.manifest.shards

    def _held(self, splits: npt.NDArray[np.int8]) -> HeldShards:
        records, ids = self._indexes
        return HeldShards(
            ids=ids,
            shards=records["shard"].to_numpy(),
            labels=records["label"].to_numpy(),
            splits=splits,
            uris=records["source_uri"].combine_chunks(),
            groups=records["group"].combine_chunks(),
            sizes=np.array([shard.num_examples for shard in self._shards], np.int64),
        )

    def stored_contents(self) -> DigestList:
        """The contents whose stored form this version holds, if that is still valid."""
        if not self.reuse.contents:
            return DigestList()
        records, _ = self._indexes
        return DigestList(digest_bytes(records["sha256"]).tobytes())  # sorted by id is sorted by digest

    def known_files(
        self, references: pa.Table, purged: DigestList, retried: Collection[str]
    ) -> tuple[npt.NDArray[np.bool_], Facts]:
        """Which files are known without being read, and what is known of these.

        Args:
            references: REFERENCE_SCHEMA.
            purged: contents that must not come back: such a file is not known.
            retried: reasons for which a file could not be used that may be over now.

        Returns:
            bool [rows of references], and the facts of those that are True, in order.
        """
        if not self.reuse.uris or self._inputs is None:
            return np.zeros(references.num_rows, np.bool_), Facts.none()
        _, ids = self._indexes
        rows, files = self._same_files(references, purged)
        record_ids_of = pc.fill_null(rows["record_id"], "0" * 16)
        places, found = _find(ids, record_ids(hex_bytes(record_ids_of, 8)))
        has_record = _mask(pc.is_valid(rows["record_id"])) & found
        lost = _mask(
            pc.and_(
                pc.or_(
                    _is(rows, FILTERED, stage="filter"),
                    _is(rows, QUARANTINED, stage="decode"),
                ),
                pc.invert(pc.is_in(rows["reason"], pa.array(list(retried), pa.string()))),
            )
        )
        known = has_record | lost
        facts = self._facts(rows.filter(pa.array(known)), places[known], has_record[known])
        mask = np.zeros(references.num_rows, np.bool_)
        mask[files[known]] = True
        self.__dict__.pop("_inputs")  # read again where it is asked for again; it is as large as the facts
        return mask, facts

    def _same_files(self, references: pa.Table, purged: DigestList) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """(rows of inputs that are the same files still, the row of ``references`` of each)."""
        assert self._inputs is not None
        places = pc.index_in(references["uri"], self._inputs["uri"].combine_chunks())
        files = np.flatnonzero(_mask(pc.is_valid(places)))
        rows, now = self._inputs.take(places.drop_null()), references.take(pa.array(files))
        same = _mask(
            pc.and_(
                pc.equal(rows["size_bytes"], now["size_bytes"]), pc.equal(rows["mtime_ns"], now["mtime_ns"])
            )
        )
        if len(purged):
            blocked = pc.is_in(rows["sha256"], pa.array(purged.hexadecimal(), pa.string()))
            # That it was purged may be known already.
            same &= ~_mask(blocked) | _mask(pc.equal(rows["reason"], PURGED))
        return rows.filter(pa.array(same)), files[same]

    def _facts(
        self, rows: pa.Table, places: npt.NDArray[np.int64], has_record: npt.NDArray[np.bool_]
    ) -> Facts:
        """The facts of known files: of their records, or why there is none."""
        records, _ = self._indexes
        taken = records.take(pa.array(places, mask=~has_record))
        columns = {"sha256": taken["sha256"], "offset_bytes": taken["offset_bytes"]}
        if not has_record.all():
            lost = rows["sha256"].filter(pa.array(~has_record)).to_pylist()
            digests = [None if text is None else bytes.fromhex(text) for text in lost]
            columns["sha256"] = pc.replace_with_mask(
                taken["sha256"], pa.array(~has_record), pa.array(digests, pa.binary(32))
            )
        for name in ("outcome", "stage", "reason", "message"):
            column = rows[name].combine_chunks()
            columns[name] = pc.if_else(pa.array(has_record), pa.scalar(None, pa.string()), column)
        columns |= {name: taken[name] for name in _IMAGE_NAMES}
        shards = pc.fill_null(taken["shard"], 0).to_numpy().astype(np.int32)
        table = pa.table({name: columns[name] for name in FACTS_SCHEMA.names}).cast(FACTS_SCHEMA)
        return Facts(table, np.where(has_record, ~shards, 0).astype(np.int32))

    def with_known_contents(self, facts: Facts) -> Facts:
        """Facts of files that were read, those with a known content filled in from this version."""
        by_content = facts.without_place()
        if not by_content.any():
            return facts
        records, ids = self._indexes
        wanted = record_ids(digest_bytes(facts.table["sha256"].filter(pa.array(by_content))))
        at, found = _find(ids, wanted)
        if not found.all():
            raise CorruptDataError(
                "a block counts on contents that the version before does not have",
                "delete the folder spool of the dataset and run again",
            )
        places = np.zeros(len(by_content), np.int64)
        places[by_content] = at
        taken = records.take(pa.array(places, mask=~by_content))
        columns = {name: facts.table[name] for name in FACTS_SCHEMA.names}
        for name in ("offset_bytes", *_IMAGE_NAMES):
            columns[name] = pc.if_else(
                pa.array(by_content), taken[name].combine_chunks(), facts.table[name].combine_chunks()
            )
        shards = pc.fill_null(taken["shard"], 0).to_numpy().astype(np.int32)
        return Facts(
            pa.table(columns).cast(FACTS_SCHEMA),
            np.where(by_content, ~shards, facts.blocks).astype(np.int32),
        )

    def all_records(self) -> tuple[pa.Table, npt.NDArray[np.int8]]:
        """(PLAN_SCHEMA, every record as it would be copied, sorted by id; index into SPLITS of each)."""
        records, _ = self._indexes
        columns = {name: records[name] for name in PLAN_SCHEMA.names if name in records.schema.names}
        columns |= {
            "id": hex_text(digest_bytes(records["sha256"])[:, :8]),
            "block": pa.array(~records["shard"].to_numpy()),
        }
        table = pa.table({name: columns[name] for name in PLAN_SCHEMA.names}).cast(PLAN_SCHEMA)
        return table, self.earlier.splits

    def stored_lengths(self, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """How long the stored record of each id is in its shard (bytes): int64 [N]; 0 where there is none."""
        records, known = self._indexes
        at, found = _find(known, ids)
        if not len(known):
            return np.zeros(len(ids), np.int64)
        return np.where(found, records["length_bytes"].to_numpy()[at], 0)


def _records_of(index: pa.Table, number: int) -> pa.Table:
    """_RECORDS_SCHEMA, of one shard."""
    digests = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(32), index.num_rows, [None, pa.py_buffer(hex_bytes(index["sha256"], 32).tobytes())]
    )
    columns = {"sha256": digests, "shard": pa.array(np.full(index.num_rows, number, np.int32))}
    columns |= {name: index[name] for name in _RECORDS_SCHEMA.names if name not in columns}
    return pa.table(columns).select(_RECORDS_SCHEMA.names).cast(_RECORDS_SCHEMA)


def merge(known: npt.NDArray[np.bool_], of_known: Facts, of_others: Facts) -> Facts:
    """The facts of all files in order, from those of the known ones and of the others.

    Args:
        known: bool [N].
    """
    if not known.any():
        return of_others  # as they are: with nothing to merge, a copy would be for nothing
    order = np.empty(len(known), np.int64)
    order[known] = np.arange(len(of_known.blocks))
    order[~known] = len(of_known.blocks) + np.arange(len(of_others.blocks))
    table = pa.concat_tables([of_known.table, of_others.table]).combine_chunks()
    blocks = np.concatenate([of_known.blocks, of_others.blocks])
    return Facts(table.take(pa.array(order)), blocks[order])


def _find(
    ids: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(where each wanted id stands among the rising ``ids``, whether it does)."""
    if not len(ids):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return at, ids[at] == wanted


def _mask(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, False).to_numpy(), np.bool_)


def _is(rows: pa.Table, outcome: str, stage: str) -> pa.ChunkedArray:
    return pc.and_(pc.equal(rows["outcome"], outcome), pc.equal(rows["stage"], stage))
