"""Records that are ``tf.train.Example`` messages: the features that hold image, label, split and group.

They are named by the settings, or recognised in the first record: the image is the feature whose bytes begin
as an image file does, and the label has one of the usual names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from beam_jobs.config import RowsConfig
from beam_jobs.schemas import NO_IMAGE
from beam_jobs.sources.files.walking import SourceFault
from beam_jobs.sources.kinds.table.formats.columns import trimmed
from beam_jobs.sources.rows.row_files import FileRows, RowFile
from infra.codecs.formats import sniff
from infra.errors import ConfigError, CorruptDataError
from infra.format.examples import Values, parse_features

# In this order; texts before numbers.
LABEL_NAMES = (
    "label_name", "image/class/text", "class_name", "label_text", "label", "image/class/label", "class",
    "cls", "image/label", "target",
)  # fmt: skip
_FEATURES_SHOWN = 20


@dataclass(frozen=True)
class FeatureMap:
    """Names of features.

    Attributes:
        image: with the encoded image, a single value of bytes.
        label: with a text or an integer.
        split: with a text, or None.
        group: with a text or a number, or None.
    """

    image: str
    label: str
    split: str | None = None
    group: str | None = None

    def in_words(self) -> str:
        """The features, for people."""
        return f"images in the feature {self.image!r}, labels in {self.label!r}"


def find_features(uri: str, payload: bytes, settings: RowsConfig) -> FeatureMap:
    """Find the features by the first record of a source.

    Args:
        uri: of the record's file, for errors.
        payload: the serialised ``tf.train.Example``.
        settings: names of features that the user gives.

    Raises:
        ConfigError: a feature is not there, or which one is meant cannot be told.
    """
    try:
        features = parse_features(payload)
    except CorruptDataError as error:
        raise ConfigError(
            f"the records of {uri} are not tf.train.Example messages", "only such records are read"
        ) from error
    shown = ", ".join(map(repr, sorted(features)[:_FEATURES_SHOWN])) or "none"
    for key in ("image", "label", "split", "group"):
        name = getattr(settings, key)
        if name is not None and name not in features:
            raise ConfigError(
                f"the first record of {uri} has no feature {name!r} for the {key}; it has {shown}",
                f"name another with --set source.rows.{key}=NAME",
            )
    image, label = settings.image, settings.label
    if image is None:
        images = recognised_image(payload)
        if len(images) != 1:
            what = f"the features {', '.join(images)}" if images else f"none of the features {shown}"
            raise ConfigError(
                f"in the first record of {uri}, {what} hold{'' if images else 's'} an encoded image",
                "say which one with --set source.rows.image=NAME",
            )
        (image,) = images
    if label is None:
        label = next((name for name in LABEL_NAMES if features.get(name)), None)
        if label is None:
            raise ConfigError(
                f"which feature of {uri} holds the label cannot be told; it has {shown}",
                "name it with --set source.rows.label=NAME",
            )
    return FeatureMap(image, label, settings.split, settings.group)


def recognised_image(payload: bytes) -> list[str]:
    """Return the features of a record that are encoded images, sorted; none if it is no example."""
    try:
        features = parse_features(payload)
    except CorruptDataError:
        return []
    return [name for name in sorted(features) if _is_image(features[name])]


def image_of(payload: bytes, image: str) -> bytes:
    """Return the image in a record.

    Raises:
        SourceFault: there is none. CorruptDataError: the record is no example.
    """
    values = parse_features(payload).get(image, ())
    if len(values) != 1 or not isinstance(values[0], bytes):
        raise SourceFault(NO_IMAGE, f"its feature {image!r} is not a single value of bytes")
    return values[0]


@dataclass
class RowsOfExamples:
    """Collects the records of a file, one after the other.

    Args:
        features: names of the features.
    """

    features: FeatureMap
    positions: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    faults: list[str | None] = field(default_factory=list)

    def add(self, position: int, payload: bytes, fault: str | None = None) -> None:
        """Add a record.

        Args:
            position: for the reader of the kind.
            payload: the serialised ``tf.train.Example``.
            fault: why it cannot be read, or None.
        """
        texts: list[str | None] = [None, None, None]
        image: Values = ()
        if fault is None:
            try:
                found = parse_features(payload)
                image = found.get(self.features.image, ())
                names = (self.features.label, self.features.split, self.features.group)
                texts = [_text(found, name) if name is not None else None for name in names]
            except (CorruptDataError, ValueError) as error:
                fault = str(error)
        self.positions.append(position)
        self.sizes.append(sum(len(value) for value in image if isinstance(value, bytes)))
        for column, text in zip((self.labels, self.splits, self.groups), texts, strict=True):
            column.append(text)
        self.faults.append(fault)

    def rows(self, file: RowFile, damage: str | None) -> FileRows:
        """Return the rows that were added.

        Args:
            file: that holds them.
            damage: why the records behind them cannot be read; None if there are no more.
        """
        return FileRows(
            file,
            positions=np.array(self.positions, np.int64),
            sizes=np.array(self.sizes, np.int64),
            labels=_column(self.labels),
            splits=_column(self.splits),
            groups=_column(self.groups),
            faults=pa.array(self.faults, pa.string()),
            damage=damage,
        )


def _column(texts: Sequence[str | None]) -> pa.Array:
    return trimmed(pa.array(texts, pa.string()))


def _is_image(values: Values) -> bool:
    return len(values) == 1 and isinstance(values[0], bytes) and sniff(values[0]) is not None


def _text(features: Mapping[str, Values], name: str) -> str | None:
    """Return the value of a feature as text; None if the feature is missing or empty.

    Raises:
        ValueError: it has several values, or is no text.
    """
    values = features.get(name, ())
    if not values:
        return None
    if len(values) > 1:
        raise ValueError(f"its feature {name!r} has {len(values)} values")
    value = values[0]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"its feature {name!r} is no text: {error}") from error
    return str(int(value)) if value == int(value) else str(value)
