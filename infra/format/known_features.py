"""Features that have a meaning of their own: labels, objects, masks, and what image files say of themselves.

**Kinds of labels**:

==========  ==========================================================================================
class       one class a record: the features ``label`` and ``label_name``
multi       any number of classes a record: the feature ``labels``, indexes into the classes
targets     numbers: the feature ``targets``, float32 of fixed length
mask        the class of each pixel; ``labels`` has the classes that it shows
none        nothing; further features may hold text or whatever else
==========  ==========================================================================================

**Objects**: boxes, their classes, and further shapes.

Features of the same record have their values in the same order, one object after the other.

====================  =========  =====================================================================
objects/bbox          float32    four numbers an object: top, left, bottom, right edge, relative to the
                                 stored image, 0 to 1 (ymin, xmin, ymax, xmax of TensorFlow Datasets)
objects/label         int64      number of its class
objects/is_crowd      int64      1 if the box is around a group of objects (COCO), or difficult (VOC)
objects/num_left_out  int64      scalar: objects of the annotation that are not in the record
====================  =========  =====================================================================

The feature ``labels`` has each class of the objects once. The following are in all records of a data set
whose source has such shapes. Points are y, x, relative to the stored image.

====================  =========  =====================================================================
objects/polygons      float32    the points of each ring, one ring after the other, 0 to 1
objects/ring_points   int64      number of points of each ring
objects/rings         int64      number of rings of each object; 0 if it has no polygon
objects/keypoints     float32    K points an object; 0, 0 if it is not annotated. ``Feature.points`` names
                                 the K points, their skeleton, and their partners in a mirrored image
objects/visibility    int64      of each key point: 0 not annotated or not in the image, 1 hidden, 2 visible
objects/corners       float32    an oriented box: four corners in turn, which may lie beyond 0 and 1; the
                                 corners of its box if the object has no other
====================  =========  =====================================================================

An object covers the area around which its rings turn: outer rings turn one way, holes the other, and where
two outer rings overlap, the area belongs to the object (winding number other than 0).

**Segmentation masks**:

=====================  ======  =========================================================================
mask/encoded           bytes   PNG, grey, of the size of the stored image: number of the class of each
                               pixel, and ``MaskFormat.ignore`` where there is none; in no index
mask/pixels            int64   number of pixels of each class in ``labels``, in the same order
mask/stored_bytes      int64   scalar: length of mask/encoded
mask/source_sha256     bytes   scalar: SHA-256 of the source of the mask, 64 hexadecimal digits
mask/source_uri        bytes   scalar: the source of the mask, relative to the source of the images
=====================  ======  =========================================================================

The feature ``labels`` has each class of the stored mask once, rising.

**What image files say of themselves**; ``image.metadata`` of prepare chooses among them:

====================  =====  ============================================================================
captured_at           text   when the picture was taken, ISO 8601: the time of the camera's clock, and
                             behind it its distance from UTC if the file tells it
camera_make           text
camera_model          text
gps_present           int64  1 if the file tells a position, else 0; the position itself is not stored
c2pa_present          int64  1 if the file has Content Credentials (C2PA), else 0; not verified
digital_source_type   text   term of IPTC's NewsCodes, such as trainedAlgorithmicMedia
licence               text   address or terms of the licence
rights                text   copyright notice
attribution           text   credit line
creator               text   who made it
geo_transform         text   six numbers, joined by spaces, that place the pixels of a GeoTIFF as the file has
                             them: x and y of a corner, and steps (shardmill.infra.codecs.structure.geotiff)
geo_crs               text   its coordinate reference system, such as EPSG:32633
====================  =====  ============================================================================

A record lacks the features that its file does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, get_args

from pydantic import ConfigDict

from shardmill.infra.errors import UsageError
from shardmill.infra.format.features import Feature, KeyPoints
from shardmill.infra.settings import Settings

LabelKind = Literal["class", "multi", "targets", "mask", "none"]

LABELS: Final = "labels"  # feature of kind multi
TARGETS: Final = "targets"  # feature of kind targets
LABEL_FEATURES: Final = frozenset({LABELS, TARGETS})

NO_CLASS: Final = -1  # in the column ``label`` of indexes, unless the kind is class

WORDS: Final[dict[LabelKind, str]] = {
    "class": "one class an image",
    "multi": "several labels an image",
    "targets": "numbers",
    "mask": "a mask of classes for each image",
    "none": "no labels",
}


def labels_feature(column: str | None) -> Feature:
    """Return the feature of several labels an image (kind multi)."""
    return Feature(name=LABELS, dtype="int64", shape="variable", column=column)


def targets_feature(count: int, column: str | None) -> Feature:
    """Return the feature of numbers that a model is to predict (kind targets)."""
    return Feature(name=TARGETS, dtype="float32", shape="fixed", length=count, column=column)


def target_names(feature: Feature) -> list[str]:
    """Return a name for each of the numbers to predict: the column that it came from, or "target 1", ..."""
    count = feature.length or 1
    names = (feature.column or "").split(", ")
    if len(names) == count and all(names) and len(set(names)) == count:
        return names
    return [f"target {number}" for number in range(1, count + 1)]


def class_name(classes: Sequence[str], label: int) -> str:
    """Return the name of a record's class; empty if it has no single class."""
    return "" if label == NO_CLASS else classes[label]


def check_has_classes(kind: LabelKind, ref: str, what: str) -> None:
    """Check that each record has one class.

    Args:
        kind: kind of labels of the version.
        ref: names the version.
        what: the thing that needs classes, as the subject of a sentence.

    Raises:
        UsageError: the version has labels of another kind.
    """
    if kind != "class":
        raise UsageError(f"{what} needs one class an image, and {ref} has {WORDS[kind]}")


BOXES: Final = "objects/bbox"
OBJECT_LABELS: Final = "objects/label"
CROWDS: Final = "objects/is_crowd"
LEFT_OUT: Final = "objects/num_left_out"
# Height and width of the image that the boxes of the source are of; only in a listing.
ANNOTATED_SIZE: Final = "objects/annotated_size"

BOX_NUMBERS: Final = 4

POLYGONS: Final = "objects/polygons"
RING_POINTS: Final = "objects/ring_points"
RINGS: Final = "objects/rings"
KEYPOINTS: Final = "objects/keypoints"
VISIBILITY: Final = "objects/visibility"
CORNERS: Final = "objects/corners"
# Features of shapes that are read together, or not at all.
SHAPE_GROUPS: Final = (
    frozenset({POLYGONS, RING_POINTS, RINGS}),
    frozenset({KEYPOINTS, VISIBILITY}),
    frozenset({CORNERS}),
)
SHAPES: Final[frozenset[str]] = frozenset().union(*SHAPE_GROUPS)

POINT_NUMBERS: Final = 2
CORNER_NUMBERS: Final = 8

_BOXES = Feature(name=BOXES, dtype="float32", shape="variable")
_CROWDS = Feature(name=CROWDS, dtype="int64", shape="variable")
_LEFT_OUT = Feature(name=LEFT_OUT, dtype="int64")
OBJECT_FEATURES: Final = (
    _BOXES,
    Feature(name=OBJECT_LABELS, dtype="int64", shape="variable"),
    _CROWDS,
    _LEFT_OUT,
)
# The same in the listing of a source: boxes in pixels of the annotated image, and names of classes.
LISTED_OBJECT_FEATURES: Final = (
    _BOXES,
    Feature(name=OBJECT_LABELS, dtype="bytes", shape="variable", is_text=True),
    _CROWDS,
    _LEFT_OUT,
    Feature(name=ANNOTATED_SIZE, dtype="int64", shape="fixed", length=2),
)

POLYGON_FEATURES: Final = (
    Feature(name=POLYGONS, dtype="float32", shape="variable"),
    Feature(name=RING_POINTS, dtype="int64", shape="variable"),
    Feature(name=RINGS, dtype="int64", shape="variable"),
)
CORNER_FEATURE: Final = Feature(name=CORNERS, dtype="float32", shape="variable")
VISIBILITY_FEATURE: Final = Feature(name=VISIBILITY, dtype="int64", shape="variable")


def keypoint_features(points: KeyPoints) -> tuple[Feature, Feature]:
    """Return the features of objects with key points: where they are, and whether they are to be seen."""
    return Feature(name=KEYPOINTS, dtype="float32", shape="variable", points=points), VISIBILITY_FEATURE


def key_points(features: Iterable[Feature]) -> KeyPoints | None:
    """Return what the key points of the objects are; None for a version without key points."""
    return next((feature.points for feature in features if feature.name == KEYPOINTS), None)


MASK: Final = "mask/encoded"
MASK_PIXELS: Final = "mask/pixels"
MASK_BYTES: Final = "mask/stored_bytes"
MASK_SHA256: Final = "mask/source_sha256"
MASK_URI: Final = "mask/source_uri"

MASK_MEANING: Final = "bytes: grey PNG of the image's size, the number of the class of each pixel"
MAX_CLASSES: Final = 65_535

# Found by reading the mask of an image.
READ_MASK_FEATURES: Final = (
    Feature(name=LABELS, dtype="int64", shape="variable"),
    Feature(name=MASK_PIXELS, dtype="int64", shape="variable"),
    Feature(name=MASK_BYTES, dtype="int64"),
    Feature(name=MASK_SHA256, dtype="bytes", is_text=True),
)
MASK_FEATURES: Final = (*READ_MASK_FEATURES, Feature(name=MASK_URI, dtype="bytes", is_text=True))


class MaskFormat(Settings):
    """The stored form of the masks of a version.

    Attributes:
        dtype: type of the pixels.
        ignore: number of pixels that belong to no class, or lie around a padded image.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Literal["uint8", "uint16"] = "uint8"
    ignore: Literal[255, 65_535] = 255


def mask_format(num_classes: int) -> MaskFormat:
    """Return the stored form of masks with so many classes."""
    if num_classes <= MaskFormat().ignore:
        return MaskFormat()
    return MaskFormat(dtype="uint16", ignore=65_535)


MetadataName = Literal[
    "captured_at", "camera_make", "camera_model", "gps_present", "c2pa_present", "digital_source_type",
    "licence", "rights", "attribution", "creator", "geo_transform", "geo_crs",
]  # fmt: skip
METADATA_NAMES: Final[tuple[MetadataName, ...]] = get_args(MetadataName)
_ARE_TRUTHS = ("gps_present", "c2pa_present")

METADATA_FEATURES: Final[dict[MetadataName, Feature]] = {
    name: Feature(name=name, dtype="int64")
    if name in _ARE_TRUTHS
    else Feature(name=name, dtype="bytes", is_text=True)
    for name in METADATA_NAMES
}

QualityFlag = Literal[
    "dark", "light", "blurred", "low_information", "uniform", "border", "odd_aspect", "odd_size"
]  # fmt: skip

# Quality flag -> what a picture with it is; ``shardmill.infra.format.quality`` has the limits.
QUALITY_FLAGS: Final[dict[QualityFlag, str]] = {
    "dark": "too dark",
    "light": "too light",
    "blurred": "without detail at the size at which it is stored",
    "low_information": "hardly more than a few shades",
    "uniform": "nearly one shade",
    "border": "in a frame, or between bars",
    "odd_aspect": "far longer than wide, or wider",
    "odd_size": "far smaller or larger than the others",
}
