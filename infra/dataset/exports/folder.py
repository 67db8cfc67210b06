"""Export a version for other libraries: one folder of plain TFRecord files with their metadata.

::

    <folder>/
      train-00000-of-00012.tfrecord    a shard, uncompressed: a link to the version's own shard, or a copy
      train-00000-of-00012.idx         the places of its records: one line "offset length" (bytes) for each
      dataset_info.json, features.json, label.labels.txt          for TensorFlow Datasets

The shards of a version may be in the folders of several plans. Here they are numbered in the manifest's
order, so each record keeps its position. The version itself does not change.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.dataset.catalog import DatasetVersion
from infra.dataset.exports.tfds_metadata import metadata_files
from infra.errors import CorruptDataError, StorageError, UsageError
from infra.format.contract import Shard
from infra.format.layout import shard_stem
from infra.format.records import frame, iter_records
from infra.storage.filesystem import Storage

OnProgress = Callable[[int, int], None]  # records done, records in all

_OTHER_NAME = "name a folder that does not exist yet"
_REMEDIES = {
    errno.EEXIST: _OTHER_NAME,
    errno.ENOTEMPTY: _OTHER_NAME,
    errno.ENOTDIR: _OTHER_NAME,
    errno.ENOSPC: "free space on the disk, or name a folder on another one",
    errno.EDQUOT: "free space within your quota, or name a folder on another disk",
}


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export.

    Attributes:
        folder: the folder that was made.
        num_shards: number of shards, over all splits.
        num_records: number of records, over all splits.
        num_bytes: bytes of the shards that were written; links count as 0.
        linked: whether the shards are links to the version's own shards.
    """

    folder: Path
    num_shards: int
    num_records: int
    num_bytes: int
    linked: bool


def export(
    version: DatasetVersion,
    folder: Path,
    *,
    copy: bool = False,
    on_progress: OnProgress | None = None,
) -> Exported:
    """Export a version to ``folder``, which appears when it is complete.

    Uncompressed shards on this machine become links. They are copied, and each record's checksum is checked,
    with ``copy``, from an object store, and out of gzip.

    Args:
        version: what to export.
        folder: must not exist.
        copy: copy the shards even if links would do.
        on_progress: told of the records that are done, and of all.

    Raises:
        UsageError: the folder is there already. CorruptDataError: the version is not whole.
        StorageError: something cannot be written.
    """
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} is there already", "name a folder that does not exist yet, or remove it")
    if missing := version.missing_files():
        raise CorruptDataError(
            f"{version.ref} is not whole: {missing[0]} is not as it was written",
            f"run `shardmill verify {version.ref}`; restore the file from a copy",
        )
    linked = version.manifest.container == "none" and version.storage.is_local and not copy
    beside = folder.parent / f".partial-{uuid.uuid4().hex}"
    target = Storage.at(beside)
    try:
        num_bytes = _fill(target, version, linked, on_progress)
        _put_in_place(beside, folder)
    finally:
        target.delete_tree("")
    manifest = version.manifest
    return Exported(folder, len(manifest.shards), manifest.accounting.num_records, num_bytes, linked)


def _fill(target: Storage, version: DatasetVersion, linked: bool, on_progress: OnProgress | None) -> int:
    """Make all files in ``target``; return the number of bytes of shards that were written."""
    shards = {split: version.shards(split) for split in version.manifest.splits}
    total, done, num_bytes = version.manifest.accounting.num_records, 0, 0
    for name, data in metadata_files(version.manifest, shards).items():
        target.write_atomic(name, data)
    for split, of_split in shards.items():
        for number, shard in enumerate(of_split):
            stem = shard_stem(split, number, len(of_split))
            if linked:
                spans = _link(target, f"{stem}.tfrecord", version, shard)
            else:
                spans = _write(target, f"{stem}.tfrecord", version, shard)
                num_bytes += sum(length for _, length in spans)
            lines = "".join(f"{offset} {length}\n" for offset, length in spans)
            target.write_atomic(f"{stem}.idx", lines.encode("ascii"))
            done += shard.num_examples
            if on_progress is not None:
                on_progress(done, total)
    return num_bytes


def _link(target: Storage, name: str, version: DatasetVersion, shard: Shard) -> list[tuple[int, int]]:
    """Link to a shard; return (offset, length) of its records (bytes)."""
    at, to = target.local_path(name), version.storage.local_path(shard.path)
    assert at is not None
    assert to is not None
    try:
        at.symlink_to(to.resolve())
    except OSError as error:
        raise StorageError(
            f"cannot link {at} to {to}: {error.strerror}", "write the shards instead: --copy"
        ) from error
    index = version.index(shard)
    return list(zip(index["offset_bytes"].to_pylist(), index["length_bytes"].to_pylist(), strict=True))


def _write(target: Storage, name: str, version: DatasetVersion, shard: Shard) -> list[tuple[int, int]]:
    """Write a shard uncompressed; return (offset, length) of its records (bytes)."""
    spans, offset = [], 0
    with target.atomic_writer(name) as stream:
        for _, _, payload in iter_records(version.storage, shard.path, version.manifest.container):
            framed = frame(payload)
            stream.write(framed)
            spans.append((offset, len(framed)))
            offset += len(framed)
    if len(spans) != shard.num_examples:
        raise CorruptDataError(
            f"{shard.path} holds {len(spans)} records, the manifest says {shard.num_examples}",
            f"run `shardmill verify {version.ref}`",
        )
    return spans


def _put_in_place(beside: Path, folder: Path) -> None:
    try:
        beside.rename(folder)  # refused if another process made a folder with content meanwhile
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, f"check that files can be written in {folder.parent}")
        raise StorageError(f"cannot create {folder}: {error.strerror}", remedy) from error
