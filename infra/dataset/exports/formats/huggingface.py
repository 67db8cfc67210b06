"""Hugging Face: Parquet with the features of ``datasets``, and a dataset card.

``datasets.load_dataset(folder)`` gives images (``Image``) and labels with class names (``ClassLabel``) of
all splits. The features stand in the metadata of each file's schema, under ``huggingface``; the configuration
of the splits stands in the head of README.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from shardmill.infra.dataset.exports.formats import Format
from shardmill.infra.dataset.exports.formats.parquet import picture_columns, table_schema, write_tables
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan, as_picture, class_names, image_suffix
from shardmill.infra.dataset.exports.target import FileMade, PartFiles
from shardmill.infra.format.known_features import LABELS
from shardmill.infra.strict_json import dump_json

_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


class _HuggingFace(Format):
    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        plain = table_schema(plan, _IMAGE, {})
        features = {field.name: _feature(plan, field) for field in plain}
        metadata = {"huggingface": dump_json({"info": {"features": features}}, ensure_ascii=False)}
        with files.create(f"data/{part.stem}.parquet") as stream:
            return write_tables(stream, plain.with_metadata(metadata), plan, batches, _pictures)

    def describe(self, plan: Plan, parts: Sequence[FileMade]) -> dict[str, bytes]:
        # JSON is YAML, and quotes every name rightly.
        head = [f"{key}: {dump_json(value, ensure_ascii=False)}" for key, value in card_head(plan).items()]
        return {"README.md": "\n".join(["---", *head, "---", "", card_text(plan)]).encode()}


def card_head(plan: Plan) -> dict[str, Any]:
    """Return the keys of a dataset card, of which ``configs`` are for files of this format."""
    splits = [{"split": split, "path": f"data/{split}-*"} for split in plan.splits]
    head: dict[str, Any] = {
        "pretty_name": plan.version.name,
        "size_categories": [_size_category(plan.num_examples)],
        "configs": [{"config_name": "default", "data_files": splits}],
    }
    if plan.version.manifest.label_kind in ("class", "multi"):
        head["task_categories"] = ["image-classification"]
    if plan.version.manifest.label_kind == "mask":
        head["task_categories"] = ["image-segmentation"]
    return head


def card_text(plan: Plan) -> str:
    """Return the text of a dataset card: what the data are, and the size of each split."""
    name, view = f"{plan.version.name}@{plan.version.version}", plan.version.view
    rows = [f"| {split} | {counts['num_examples']:,} |" for split, counts in plan.counts().items()]
    lines = [
        f"# {plan.version.name}", "",
        f"{plan.num_examples:,} images of {len(class_names(plan))} classes: {name} of Shardmill.",
        *([f"Only the records with `{view.query}`."] if view else []),
        "", "| split | images |", "|---|---|", *rows, "",
    ]  # fmt: skip
    return "\n".join(lines)


def _pictures(plan: Plan, batch: Batch) -> dict[str, pa.Array]:
    suffix = image_suffix(plan, raw="png")
    images = [{"bytes": as_picture(plan, each), "path": f"{each.id}.{suffix}"} for each in batch.records]
    masks = [{"bytes": each.mask, "path": f"{each.id}.png"} for each in batch.records]
    pictures = {"image": images, "mask": masks}
    return {name: pa.array(pictures[name], _IMAGE) for name in picture_columns(plan)}


def _feature(plan: Plan, field: pa.Field) -> dict[str, Any]:
    """Describe a column as ``datasets.Features`` does."""
    if field.name in picture_columns(plan):
        return {"_type": "Image"}
    if field.name == "label":
        return {"names": class_names(plan), "_type": "ClassLabel"}
    if field.name == LABELS:
        return {"feature": {"names": class_names(plan), "_type": "ClassLabel"}, "_type": "Sequence"}
    if types.is_list(field.type):
        return {"feature": _value(field.type.value_type), "_type": "Sequence"}
    return _value(field.type)


def _value(kind: pa.DataType) -> dict[str, Any]:
    names = {pa.float32(): "float32", pa.float64(): "float64", pa.bool_(): "bool"}
    return {"dtype": names.get(kind, str(kind)), "_type": "Value"}


def _size_category(number: int) -> str:
    limits = [(1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")]
    return next((name for limit, name in limits if number < limit), "1M<n<10M" if number < 10**7 else "n>10M")


FORMAT = _HuggingFace()
