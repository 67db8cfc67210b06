"""The result of a run, as ``--json`` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.encode.stage import EncodedFiles
from shardmill.beam_jobs.reuse.known_files import KnownFiles
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import STORED_FROM
from shardmill.infra.format.known_features import LABELS, TARGETS
from shardmill.infra.format.layout import manifest_file


@dataclass(frozen=True, slots=True)
class SavedWork:
    """The work that a run was spared, and the work that was left.

    Attributes:
        blocks: finished by an earlier run that was interrupted.
        images: in these blocks.
        shards: finished by an earlier run that was interrupted.
        known_files: files that the previous version knows, so that they were not read.
        known_contents: files that were read, and whose content the previous version stores.
        inherited_shards: shards of the previous version that stay as they are.
        num_encoded: files that were left to be decoded.
    """

    blocks: int = 0
    images: int = 0
    shards: int = 0
    known_files: int = 0
    known_contents: int = 0
    inherited_shards: int = 0
    num_encoded: int = 0

    @classmethod
    def of(cls, known: KnownFiles, encoded: EncodedFiles, stored_before: npt.NDArray[np.bool_]) -> Self:
        """Count the work that listing, reading and encoding were spared.

        Args:
            known: the files whose facts the previous version knows.
            encoded: the others.
            stored_before: bool [others], those whose content the previous version stores.
        """
        return cls(
            blocks=len(encoded.reused),
            images=encoded.num_reused_files(),
            known_files=int(known.mask.sum()),
            known_contents=int(stored_before.sum()),
            num_encoded=encoded.num_decoded(stored_before),
        )


def outcome_of(
    version: DatasetVersion,
    counts_before: dict[str, int],
    reused: SavedWork,
    seconds: float,
    *,
    unchanged: bool,
) -> dict[str, Any]:
    """Return the result of a run.

    Args:
        version: the version that was published, or found unchanged.
        counts_before: class -> number of files that were listed to be read.
        reused: the work that the run was spared.
        seconds: duration of the whole run.
        unchanged: whether there was nothing to do.
    """
    manifest = version.manifest
    return {
        "dataset": manifest.dataset,
        "version": manifest.version,
        "unchanged": unchanged,
        **manifest.accounting.model_dump(),
        "splits": {name: split.model_dump() for name, split in manifest.splits.items()},
        "empty_splits": manifest.empty_splits,
        "container": manifest.container,
        "container_reason": manifest.container_reason,
        "label_kind": manifest.label_kind,
        "classes": manifest.classes,
        "features": {feature.name: str(feature) for feature in manifest.extra_features},
        "class_counts_before": counts_before,
        "quarantine": manifest.quarantine,
        "num_label_conflicts": len(manifest.label_conflicts),
        "near_duplicates": _near_duplicates(version),
        "leaks": manifest.leaks.model_dump(),
        "num_cross_split_duplicates": manifest.cross_split_duplicates,
        "source": manifest.source,
        "manifest": f"{version.storage.uri}/{manifest_file(manifest.version)}",
        "report": f"{version.storage.uri}/{manifest.report}" if manifest.report else None,
        "reused": {"blocks": reused.blocks, "images": reused.images, "shards": reused.shards},
        "parent": manifest.parent,
        "known": {"files": reused.known_files, "contents": reused.known_contents},
        "inherited_shards": reused.inherited_shards,
        "num_encoded": reused.num_encoded,
        "stored_from": None if unchanged else _stored_from(version),
        "seconds": round(seconds, 3),
        "images_per_second": round(reused.num_encoded / seconds, 1) if seconds else 0.0,
    }


def label_counts(listed: pa.Table) -> dict[str, int]:
    """Return class -> number of files that have it, sorted by name; empty if the labels are no classes.

    Args:
        listed: LISTING_SCHEMA and columns of features.
    """
    if PREFIX + TARGETS in listed.schema.names:
        return {}
    if PREFIX + LABELS in listed.schema.names:
        chunks = [chunk.flatten() for chunk in listed[PREFIX + LABELS].chunks]
        return class_counts(pa.chunked_array(chunks, pa.string()))
    return class_counts(listed["label"].drop_null())


def class_counts(labels: pa.ChunkedArray) -> dict[str, int]:
    """Return class -> number of files, sorted by name."""
    counted = pc.value_counts(labels).to_pylist() if len(labels) else []
    return dict(sorted((str(entry["values"]), int(entry["counts"])) for entry in counted))


def _stored_from(version: DatasetVersion) -> dict[str, int] | None:
    """Count the records by what they were stored from; None unless images may be copied unchanged."""
    if not version.manifest.config.get("image", {}).get("passthrough"):
        return None
    counts = dict.fromkeys(STORED_FROM, 0)
    for batch in version.scan(["stored_from"]).to_batches():
        for name in STORED_FROM:
            counts[name] += pc.sum(pc.equal(batch["stored_from"], name)).as_py() or 0
    return counts


def _near_duplicates(version: DatasetVersion) -> dict[str, int] | None:
    """Count near-duplicate records, their groups, and the groups under several labels."""
    part = version.manifest.near_duplicates
    if part is None:
        return None
    table = version.checked_table(part.path, part.sha256).select(["group", "label"])
    labels = table.group_by("group").aggregate([("label", "count_distinct")])["label_count_distinct"]
    conflicts = pc.sum(pc.cast(pc.greater(labels, 1), pa.int64())).as_py() or 0
    return {"num_records": table.num_rows, "num_groups": len(labels), "num_conflicts": conflicts}
