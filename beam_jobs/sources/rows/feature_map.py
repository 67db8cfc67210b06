"""Records that are ``tf.train.Example`` messages: the features that hold image, label, split and group.

They are named by the settings, or recognised in the first record: the image is the feature whose bytes begin
as an image file does, and the label has one of the usual names.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmill.beam_jobs.config import RowsConfig
from shardmill.beam_jobs.schemas import NO_IMAGE
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.rows.typed import asked_columns, needs_label
from shardmill.infra.codecs.formats import sniff
from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.infra.format.examples import Values, parse_features
from shardmill.infra.format.labels import LabelKind

# In this order; texts before numbers.
LABEL_NAMES = (
    "label_name", "image/class/text", "class_name", "label_text", "label", "image/class/label", "class",
    "cls", "image/label", "target",
)  # fmt: skip
_LIST_NAMES = ("labels", "image/class/labels", "targets", "tags")  # of kinds with several a record
_FEATURES_SHOWN = 20


@dataclass(frozen=True)
class FeatureMap:
    """Names of features.

    Attributes:
        image: with the encoded image, a single value of bytes.
        label: with the class (a text or an integer), labels or numbers; None if others hold them, or none.
        split: with a text, or None.
        group: with a text or a number, or None.
        kind: of the labels.
        others: with labels in features of their own, and further features.
        single: those of ``others`` that hold one value.
    """

    image: str
    label: str | None
    split: str | None = None
    group: str | None = None
    kind: LabelKind = "class"
    others: tuple[str, ...] = ()
    single: frozenset[str] = frozenset()

    def in_words(self) -> str:
        """The features, for people."""
        labels = f", labels in {self.label!r}" if self.label is not None else ""
        others = f", further features {', '.join(map(repr, self.others))}" if self.others else ""
        return f"images in the feature {self.image!r}{labels}{others}"


def find_features(uri: str, payload: bytes, settings: RowsConfig, kind: LabelKind) -> FeatureMap:
    """Find the features by the first record of a source.

    Args:
        uri: of the record's file, for errors.
        payload: the serialised ``tf.train.Example``.
        settings: names of features that the user gives.
        kind: of the labels.

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
    # A record may lack a further feature, so the first one does not tell whether there is such.
    of_labels = (*settings.label_columns, *settings.target_columns)
    for key, name in (
        *((key, getattr(settings, key)) for key in ("image", "label", "split", "group")),
        *(("labels", name) for name in of_labels),
    ):
        if name is not None and name not in features:
            raise ConfigError(
                f"the first record of {uri} has no feature {name!r} for the {key}; it has {shown}",
                "name another with --set source.rows."
                + (f"{key}=NAME" if key != "labels" else "label_columns=NAME or target_columns=NAME"),
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
    if not needs_label(settings, kind):
        label = None
    elif label is None:
        several = _LIST_NAMES if kind in ("multi", "targets") else ()
        label = next((name for name in (*several, *LABEL_NAMES) if features.get(name)), None)
        if label is None:
            raise ConfigError(
                f"which feature of {uri} holds the label cannot be told; it has {shown}",
                "name it with --set source.rows.label=NAME",
            )
    others = tuple(asked_columns(settings, kind))
    return FeatureMap(image, label, settings.split, settings.group, kind, others, frozenset(of_labels))


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


def _is_image(values: Values) -> bool:
    return len(values) == 1 and isinstance(values[0], bytes) and sniff(values[0]) is not None
