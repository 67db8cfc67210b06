"""Python code that parses the records of a version with TensorFlow, for readers without this project."""

from __future__ import annotations

from shardmill.infra.format.contract import FEATURES, Manifest
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import MASK

_TYPES = {"int64": "tf.int64", "float32": "tf.float32", "bytes": "tf.string"}
_MISSING = {"int64": "-(2**63)", "float32": 'float("nan")', "bytes": 'b""'}


def parser_code(manifest: Manifest) -> str:
    """Return a module of Python: features for ``tf.io.parse_example``, and two functions that use them."""
    names = [name for name in (*FEATURES, MASK) if name in manifest.features]
    lines = [f'    "{name}": tf.io.FixedLenFeature([], {_type_of(name)}),' for name in names]
    lines += [f'    "{feature.name}": {_specification(feature)},' for feature in manifest.extra_features]
    compression = "GZIP" if manifest.container == "gzip" else ""
    ref = f"{manifest.dataset}@{manifest.version}"
    return f'''"""Parse the records of {ref}, made by `shardmill show --parser`."""

import tensorflow as tf

FEATURES = {{
{chr(10).join(lines)}
}}


def parse(serialized):
    """Parse one record: a tensor for each feature, ragged for lists of any length."""
    return tf.io.parse_single_example(serialized, FEATURES)


def read(files):
    """Read the records of shards as a tf.data.Dataset of dicts."""
    return tf.data.TFRecordDataset(files, compression_type="{compression}").map(parse)
'''


def _type_of(name: str) -> str:
    return "tf.string" if name == MASK or FEATURES[name].startswith("bytes") else "tf.int64"


def _specification(feature: Feature) -> str:
    kind = _TYPES[feature.dtype]
    if feature.shape == "variable":
        return f"tf.io.RaggedFeature({kind})"
    missing = _MISSING[feature.dtype]
    length = feature.length
    if length is None:
        return f"tf.io.FixedLenFeature([], {kind}, default_value={missing})"
    return f"tf.io.FixedLenFeature([{length}], {kind}, default_value=[{missing}] * {length})"
