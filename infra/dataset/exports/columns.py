"""The rows of an index in the words of other libraries: class names as text, JSON values, file suffixes."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.infra.codecs.encode import encode
from shardmill.infra.dataset.exports.plan import Plan
from shardmill.infra.dataset.exports.reading import Batch
from shardmill.infra.format.examples import ImageRecord
from shardmill.infra.storage.names import uri_of
from shardmill.infra.strict_json import dump_json

_SUFFIXES = {"jpeg": "jpg", "png": "png", "webp": "webp"}


def class_names(plan: Plan) -> list[str]:
    """Class names as text; bytes that are not UTF-8 are escapes, as in URIs."""
    return [uri_of(name) for name in plan.version.manifest.classes]


def label_names(plan: Plan, batch: Batch) -> pa.Array:
    """The class name of each record of a batch; null where a record has no label."""
    labels = batch.index["label"].combine_chunks()
    return pa.array(class_names(plan), pa.string()).take(labels)


def image_suffix(plan: Plan, raw: str) -> str:
    """File suffix of the images, without a dot; ``raw`` is that of raw pixels."""
    return _SUFFIXES.get(plan.version.manifest.image_encoding, raw)


def as_npy(record: ImageRecord) -> bytes:
    """A raw image as a file of numpy: uint8 [H, W, C]."""
    sink = io.BytesIO()
    np.save(sink, _pixels(record), allow_pickle=False)
    return sink.getvalue()


def as_picture(plan: Plan, record: ImageRecord) -> bytes:
    """The stored image as a file that any program opens: raw pixels become a PNG."""
    if plan.version.manifest.image_encoding != "raw":
        return record.image
    return encode(_pixels(record), "png", 100)


def json_rows(plan: Plan, batch: Batch) -> Iterator[dict[str, Any]]:
    """The rows of a batch with their class names, JSON-able."""
    names = label_names(plan, batch).to_pylist()
    for row, name in zip(batch.index.to_pylist(), names, strict=True):
        yield {"label_name": name} | {key: json_value(value) for key, value in row.items()}


def json_value(value: Any) -> Any:
    """A value as JSON can hold it: bytes as base64, NaN and infinities as null, times as ISO 8601."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [json_value(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def json_line(value: dict[str, Any]) -> bytes:
    """Canonical JSON in UTF-8 with a line feed."""
    return (dump_json(value, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _pixels(record: ImageRecord) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(record.image, np.uint8).reshape(record.shape)
