"""Purge: remove contents from every version of a dataset for good, for example on request of a person.

    find -> block list and journal -> shards, indexes, tables, manifests -> reports -> files and spools

The contents are named by their URIs; all other URIs that ever had the same bytes go with them. The block list
of purged images holds only SHA-256 digests, of contents and of URIs. The journal is deleted at the
very end. While it exists, the next purge finishes the one that was killed, whatever else it is asked for, and
other commands warn. No prepare takes over blocked contents.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.maintain.to_purge import ToPurge, find_to_purge, write_journal
from shardmill.beam_jobs.plan.statistics import split_statistics
from shardmill.beam_jobs.publish.accounting import account, quarantine_reasons
from shardmill.beam_jobs.publish.outline import table_bytes
from shardmill.beam_jobs.reasons import LEAK, SAME_BYTES_ACROSS_SPLITS
from shardmill.beam_jobs.tables.ids import table_digest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.croissant import write_croissant
from shardmill.infra.dataset.lock import lock_for_removing
from shardmill.infra.dataset.maintenance.garbage import find_garbage, remove_files
from shardmill.infra.dataset.maintenance.removed import PURGING_FILE, add_purged, delete_for_good
from shardmill.infra.dataset.publishing import record_report
from shardmill.infra.dataset.version import DatasetVersion, read_parquet
from shardmill.infra.digests import digest_of, sha256_hex
from shardmill.infra.format.contract import (
    DUPLICATE,
    INPUTS_SCHEMA,
    RECORD,
    SPLITS,
    Leaks,
    Manifest,
    Shard,
    SplitStatistics,
    TableFile,
    class_counts_of,
    summarise_splits,
)
from shardmill.infra.format.layout import croissant_file, data_dir, inputs_file
from shardmill.infra.format.quality import with_counts
from shardmill.infra.format.records import unpack_record
from shardmill.infra.preparation import MAYBE_FLOAT
from shardmill.infra.progress import progress, stage
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import RangeReader

__all__ = ["ToPurge", "find_to_purge", "purge"]


def purge(catalog: Catalog, name: str, sources: Sequence[str]) -> ToPurge:
    """Remove contents from every version of a dataset, and keep them from coming back.

    Args:
        catalog: the datasets.
        name: name of the dataset.
        sources: URIs relative to the source, or paths of files; none to finish a purge that was killed.

    Raises:
        NotFoundError: no version ever knew one of the sources.
        UsageError: no source is given, and no purge has to be finished.
        LockedError: a version is being made at this moment.
        CorruptDataError: a record that stays cannot be copied; repair it and run again.
    """
    storage = catalog.dataset_storage(name)
    wanted = find_to_purge(catalog, name, sources)  # before the lock's file makes a folder
    if not wanted.uris:
        return wanted  # all of it is gone already
    with lock_for_removing(storage, name):
        wanted = find_to_purge(catalog, name, sources)
        delete_for_good(storage)  # removed versions may have the contents too
        write_journal(storage, wanted)
        contents = (bytes.fromhex(digest) for digest in wanted.digests)
        add_purged(storage, contents, [*wanted.uris, *wanted.other_uris])
        _rewrite_manifests(catalog, storage, wanted)
        _write_reports(catalog, storage, name)
        _remove_the_rest(catalog, storage, name)
        storage.delete(PURGING_FILE)
    return wanted


def _rewrite_manifests(catalog: Catalog, storage: Storage, wanted: ToPurge) -> None:
    stage("purge", len(wanted.rows), unit="versions")
    rewriter = _Rewriter(storage, wanted)
    for done, number in enumerate(sorted(wanted.rows), 1):
        changed = rewriter.rewrite(catalog.open(f"{wanted.dataset}@{number}"))
        # It names files of the old manifest. Without it the version is whole; it comes with the reports.
        storage.delete(croissant_file(number))
        catalog.replace(changed)
        progress("purge", done, len(wanted.rows), unit="versions")


def _write_reports(catalog: Catalog, storage: Storage, name: str) -> None:
    """Write every report and description again: a report may show records of the purged version too."""
    from shardmill.beam_jobs.report import write_report  # its template engine is needed here only

    made: set[str] = set()
    for number in catalog.versions(name):
        manifest = catalog.open(f"{name}@{number}").manifest
        write_croissant(storage, manifest)
        if manifest.report is not None and manifest.report not in made:
            path = write_report(storage, manifest)
            record_report(catalog, name, path)
            made.add(path)


def _remove_the_rest(catalog: Catalog, storage: Storage, name: str) -> None:
    """Remove the spools, and all files that no version names any more."""
    for run in storage.list_folders("spool"):
        storage.delete_tree(f"spool/{run}")
    remove_files(storage, find_garbage(catalog, name))
    storage.sweep("data")


_PURGED = "(purged)"


class _Rewriter:
    """Writes the files of versions without the purged images; a file that several versions share only once.

    Args:
        storage: the dataset's folder.
        wanted: the images to remove.
    """

    def __init__(self, storage: Storage, wanted: ToPurge) -> None:
        self._storage = storage
        self._wanted = wanted
        self._folder = data_dir(digest_of(["purge", wanted.uris, sorted(wanted.digests)]))
        self._shards: dict[str, Shard | None] = {}
        self._parts: dict[str, TableFile] = {}

    def rewrite(self, version: DatasetVersion) -> Manifest:
        """Write a version's files without the purged images; returns its new manifest.

        Raises:
            CorruptDataError: a record that stays cannot be copied.
        """
        manifest = version.manifest
        kept = [self._shard(version, shard) for shard in manifest.shards]
        shards = [shard for shard in kept if shard is not None]
        parts = [self._part(version, part) for part in manifest.inputs]
        changed = manifest.model_copy(
            update={
                "source_digest": "",  # so that the next prepare looks at the source anew
                "shards": shards,
                "inputs": parts,
                "near_duplicates": self._near_duplicates(version),
                "splits": summarise_splits(shards),
                "label_conflicts": [
                    conflict
                    for conflict in manifest.label_conflicts
                    if conflict.sha256 not in self._wanted.digests
                ],
            }
        )
        left = DatasetVersion(self._storage, changed)
        inputs, near = left.inputs(), changed.near_duplicates
        rest = {
            "cross_split_duplicates": self._num_crossing(version, inputs),
            "leaks": _count_leaks(inputs, None if near is None else left.table(near.path)),
            "accounting": account(inputs),
            "quarantine": quarantine_reasons(inputs),
            "statistics": self._statistics(changed) if manifest.statistics else {},
            "quality": with_counts(manifest.quality, map(left.index, shards)),
        }
        return Manifest.model_validate(changed.model_copy(update=rest).model_dump())

    def _num_crossing(self, version: DatasetVersion, inputs: pa.Table) -> int:
        """Count the duplicates across given splits that are left.

        Rows of earlier releases do not say so; they count as before, up to the number of duplicates left.
        """
        before = version.manifest.cross_split_duplicates
        if not before:
            return 0
        lost = _count_crossing(version.inputs()) - _count_crossing(inputs)
        return min(before - lost, account(inputs).num_duplicates)

    def _shard(self, version: DatasetVersion, shard: Shard) -> Shard | None:
        """Return the shard without purged records; None if no record is left."""
        if shard.path not in self._shards:
            index = version.index(shard)
            goes = pc.is_in(index["sha256"], pa.array(sorted(self._wanted.digests), pa.string()))
            lost = index["id"].filter(goes).to_pylist()
            rows = index.filter(pc.invert(goes))
            self._shards[shard.path] = (
                shard if not lost else self._copy(version, shard, rows, lost) if rows.num_rows else None
            )
        return self._shards[shard.path]

    def _copy(self, version: DatasetVersion, shard: Shard, rows: pa.Table, lost: list[str]) -> Shard:
        manifest = version.manifest
        folder = data_dir(digest_of(["purged", shard.path, sorted(lost)]))
        names = [path.rpartition("/")[2] for path in (shard.path, shard.index_path)]
        stored = io.BytesIO()
        lengths = rows["length_bytes"].to_numpy()
        with closing(RangeReader(self._storage)) as reader:
            for offset, length in zip(rows["offset_bytes"].to_pylist(), lengths.tolist(), strict=True):
                packed = reader.read(shard.path, offset, length)
                unpack_record(packed, manifest.container)  # its checksum
                stored.write(packed)
        offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        at = rows.schema.get_field_index("offset_bytes")
        rows = rows.set_column(at, rows.schema.field(at), pa.array(offsets, pa.int64()))
        data, index = stored.getvalue(), table_bytes(rows)
        self._storage.write_atomic(f"{folder}/{names[0]}", data)
        self._storage.write_atomic(f"{folder}/{names[1]}", index)
        return Shard(
            path=f"{folder}/{names[0]}",
            index_path=f"{folder}/{names[1]}",
            split=shard.split,
            num_examples=rows.num_rows,
            num_bytes=len(data),
            payload_bytes=pc.sum(rows["stored_bytes"]).as_py(),
            sha256=sha256_hex(data),
            index_bytes=len(index),
            index_sha256=sha256_hex(index),
            class_counts=class_counts_of(rows, manifest.classes),
        )

    def _part(self, version: DatasetVersion, part: TableFile) -> TableFile:
        if part.path not in self._parts:
            table = version.table(part.path)
            kept = self._without_names(table.filter(pc.invert(self._wanted.matches(table))))
            self._parts[part.path] = part if kept.equals(table) else self._write(kept, None)
        return self._parts[part.path]

    def _without_names(self, rows: pa.Table) -> pa.Table:
        """Return the rows with purged URIs removed from their messages."""
        messages = rows["message"]
        for uri in (*self._wanted.uris, *self._wanted.other_uris):
            if pc.any(pc.match_substring(messages, uri)).as_py():
                messages = pc.replace_substring(messages, uri, _PURGED)
        at = INPUTS_SCHEMA.get_field_index("message")
        return rows.set_column(at, INPUTS_SCHEMA.field(at), messages)

    def _near_duplicates(self, version: DatasetVersion) -> TableFile | None:
        part = version.manifest.near_duplicates
        if part is None:
            return None
        if part.path not in self._parts:
            table = version.table(part.path)
            uris = pc.is_in(table["uri"], pa.array(self._wanted.uris, pa.string()))
            ids = pc.is_in(table["record_id"], pa.array(sorted(self._wanted.ids), pa.string()))
            goes = pc.or_(uris, ids)
            kept = _regrouped(table, goes) if pc.any(goes).as_py() else table
            self._parts[part.path] = part if kept is table else self._write(kept, "near_duplicates")
        return self._parts[part.path]

    def _write(self, table: pa.Table, name: str | None) -> TableFile:
        """Write a table to the folder of this purge, named by the digest of its rows."""
        digest = table_digest(table)[:24]
        path = f"{self._folder}/{inputs_file(digest) if name is None else f'{name}-{digest}.parquet'}"
        data = table_bytes(table)
        self._storage.write_atomic(path, data)
        return TableFile(path=path, num_rows=table.num_rows, num_bytes=len(data), sha256=sha256_hex(data))

    def _statistics(self, manifest: Manifest) -> dict[str, SplitStatistics]:
        tables, splits = [], []
        for shard in manifest.shards:
            with self._storage.open_input(shard.index_path) as stream:
                tables.append(read_parquet(stream))
            splits += [SPLITS.index(shard.split)] * shard.num_examples
        if not tables:
            return {}
        return split_statistics(
            pa.concat_tables(tables).combine_chunks(),
            np.arange(len(splits)),
            np.array(splits, np.int8),
            manifest.config.get("image", {}).get("depth") in MAYBE_FLOAT,
        )


def _regrouped(table: pa.Table, goes: pa.ChunkedArray) -> pa.Table:
    """Remove near-duplicates: groups are named again, and single members removed.

    The distances stay, even if the nearest member of a group is the one that is removed.
    """
    groups: dict[str, list[dict[str, object]]] = {}
    for row in table.filter(pc.invert(goes)).to_pylist():
        groups.setdefault(row["group"], []).append(row)
    rows = []
    for members in groups.values():
        if len(members) > 1:
            name = min(str(member["record_id"]) for member in members)
            rows += [member | {"group": name} for member in members]
    rows.sort(key=lambda row: (str(row["group"]), str(row["record_id"])))
    return pa.Table.from_pylist(rows, table.schema)


def _count_leaks(inputs: pa.Table, near_duplicates: pa.Table | None) -> Leaks:
    """Count the groups that are in several splits, or would if no record had been dropped from train.

    Args:
        inputs: INPUTS_SCHEMA.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None if none were looked for.
    """
    dropped = pc.fill_null(pc.equal(inputs["reason"], LEAK), False)
    placed = pc.or_(pc.is_in(inputs["outcome"], pa.array([RECORD, DUPLICATE])), dropped)
    members = pa.table(
        {"group": inputs["group"], "split": pc.if_else(dropped, "train", inputs["split"])}
    ).filter(pc.and_(placed, pc.is_valid(inputs["group"])))
    return Leaks(
        near_duplicate_groups=0 if near_duplicates is None else _num_divided(near_duplicates),
        key_groups=_num_divided(members),
        dropped_from_train=len(inputs["sha256"].filter(dropped).unique()),
    )


def _count_crossing(inputs: pa.Table) -> int:
    """Count the duplicates that the source gives another split than the record that they repeat.

    Args:
        inputs: INPUTS_SCHEMA.
    """
    return int(pc.sum(pc.equal(inputs["reason"], SAME_BYTES_ACROSS_SPLITS)).as_py() or 0)


def _num_divided(members: pa.Table) -> int:
    """Count the groups in several splits; a member without a split was dropped from train."""
    splits = pa.table({"group": members["group"], "split": pc.fill_null(members["split"], "train")})
    counts = splits.group_by("group").aggregate([("split", "count_distinct")])["split_count_distinct"]
    return int(pc.sum(pc.greater(counts, 1)).as_py() or 0)
