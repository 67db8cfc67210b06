"""TFRecord for TensorFlow Datasets, NVIDIA DALI and others: uncompressed shards with their metadata.

::

    train-00000-of-00012.tfrecord    a shard, uncompressed: a link to the version's own shard, or a copy
    train-00000-of-00012.idx         the places of its records: one line "offset length" (bytes) for each
    dataset_info.json, features.json, label.labels.txt          for TensorFlow Datasets

Several labels are ``labels``, a sequence of class labels; boxes are ``objects``, as its own detection data
sets have them; numbers are ``targets``. Masks are refused.

Uncompressed shards on this machine become links, unless they are to be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmill.infra.dataset.exports.formats import PlainFormat
from shardmill.infra.dataset.exports.formats.tfds_metadata import metadata_files
from shardmill.infra.dataset.exports.plan import Part, Plan
from shardmill.infra.dataset.exports.reading import Batch
from shardmill.infra.dataset.exports.target import FileMade, PartFiles
from shardmill.infra.errors import UsageError
from shardmill.infra.format.labels import WORDS
from shardmill.infra.format.records import frame
from shardmill.infra.storage.filesystem import Storage


class _TensorFlowDatasets(PlainFormat):
    def check(self, plan: Plan) -> None:
        """See ``Format``."""
        version = plan.version
        if version.manifest.label_kind == "mask":
            raise UsageError(
                f"{version.ref} has {WORDS['mask']}: the metadata of TensorFlow Datasets cannot say so",
                "export them in another format, such as --format parquet",
            )

    def links(self, plan: Plan, destination: Storage) -> bool:
        """See ``Format``."""
        version = plan.version
        plain = version.manifest.container == "none" and version.view is None
        return plain and version.storage.is_local and destination.is_local and not plan.copy

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        """See ``Format``."""
        spans = _linked(plan, part, files) if files.are_links else _written(part, batches, files)
        files.write(f"{part.stem}.idx", "".join(f"{at} {length}\n" for at, length in spans).encode("ascii"))
        return len(spans)

    def describe(self, plan: Plan, parts: Sequence[FileMade]) -> dict[str, bytes]:
        """See ``Format``."""
        sizes = {file.path: file.num_bytes for file in parts}
        return metadata_files(plan, {part.stem: sizes[f"{part.stem}.tfrecord"] for part in plan.parts})


def _linked(plan: Plan, part: Part, files: PartFiles) -> list[tuple[int, int]]:
    """Link to a shard; return (offset, length) of its records (bytes)."""
    to = plan.version.storage.local_path(part.shard.path)
    assert to is not None
    files.link(f"{part.stem}.tfrecord", to.resolve(), part.shard.num_bytes, part.shard.sha256)
    index = plan.version.index(part.shard)
    return list(zip(index["offset_bytes"].to_pylist(), index["length_bytes"].to_pylist(), strict=True))


def _written(part: Part, batches: Iterator[Batch], files: PartFiles) -> list[tuple[int, int]]:
    """Write a shard uncompressed; return (offset, length) of its records (bytes)."""
    spans, offset = [], 0
    with files.create(f"{part.stem}.tfrecord") as stream:
        for batch in batches:
            for payload in batch.payloads:
                framed = frame(payload)
                stream.write(framed)
                spans.append((offset, len(framed)))
                offset += len(framed)
    return spans


FORMAT = _TensorFlowDatasets()
