"""A version as other libraries like to find it: one folder of plain TFRecord files, and what describes them.

::

    <folder>/
      train-00000-of-00012.tfrecord    a shard, uncompressed: a link to the version's own, or written anew
      train-00000-of-00012.idx         where its records lie: a line "offset length" (bytes) a record
      dataset_info.json, features.json, label.labels.txt          for TensorFlow Datasets

The shards of a version may lie in the folders of several plans; here they are numbered through, in the
manifest's order, so that a record has the same place as in ours. The version itself is not touched.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.catalog import DatasetVersion
from infra.contract import Shard, shard_stem
from infra.errors import CorruptDataError, StorageError, UsageError
from infra.records import frame, iter_records
from infra.storage import Storage
from infra.tfds_metadata import metadata_files

OnProgress = Callable[[int, int], None]  # records done, records in all


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export made.

    Attributes:
        folder: where.
        num_shards: of all splits.
        num_records: likewise.
        num_bytes: of shards that were written; linked ones take no room.
        linked: whether the shards are links to the version's own.
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
    """Make ``folder``, which appears only when it is whole.

    Uncompressed shards on this machine are linked to. With ``copy``, from other storage or out of gzip they
    are written, and each record's checksum is checked.

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
    """Make all files in ``target``; the bytes of shards written."""
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
    """Link to a shard; (offset, length) of its records (bytes)."""
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
    """Write a shard uncompressed; (offset, length) of its records (bytes)."""
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
        beside.rename(folder)  # refused where another made a folder with content meanwhile
    except OSError as error:
        raise StorageError(
            f"cannot make {folder}: {error.strerror}", "name a folder that does not exist yet"
        ) from error
