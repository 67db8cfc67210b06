"""Objects in an image, as features of its record: boxes and their classes.

Features of the same record have their values in the same order, one object after the other.

====================  =========  =====================================================================
objects/bbox          float32    four numbers an object: top, left, bottom, right edge, relative to the
                                 stored image, 0 to 1 (ymin, xmin, ymax, xmax of TensorFlow Datasets)
objects/label         int64      number of its class
objects/is_crowd      int64      1 if the box is around a group of objects (COCO), or difficult (VOC)
objects/num_left_out  int64      scalar: objects of the annotation that are not in the record
====================  =========  =====================================================================

The feature ``labels`` (``shardmill.infra.format.labels``) has each class of the objects once.
"""

from __future__ import annotations

from typing import Final

from shardmill.infra.format.features import Feature

BOXES: Final = "objects/bbox"
OBJECT_LABELS: Final = "objects/label"
CROWDS: Final = "objects/is_crowd"
LEFT_OUT: Final = "objects/num_left_out"
# Height and width of the image that the boxes of the source are of; only in a listing.
ANNOTATED_SIZE: Final = "objects/annotated_size"

BOX_NUMBERS: Final = 4

OBJECT_FEATURES: Final = (
    Feature(name=BOXES, dtype="float32", shape="variable"),
    Feature(name=OBJECT_LABELS, dtype="int64", shape="variable"),
    Feature(name=CROWDS, dtype="int64", shape="variable"),
    Feature(name=LEFT_OUT, dtype="int64"),
)
# The same as a source lists them: boxes in pixels of the annotated image, and names of classes.
LISTED_OBJECT_FEATURES: Final = (
    Feature(name=BOXES, dtype="float32", shape="variable"),
    Feature(name=OBJECT_LABELS, dtype="bytes", shape="variable", is_text=True),
    Feature(name=CROWDS, dtype="int64", shape="variable"),
    Feature(name=LEFT_OUT, dtype="int64"),
    Feature(name=ANNOTATED_SIZE, dtype="int64", shape="fixed", length=2),
)
