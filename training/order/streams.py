"""Number the random streams. All numbers are in this module, so that no two streams share one.

A random number is ``uniform(key, stream)``, and its key is ``key_of(purpose, seed, epoch, ...)``. Two numbers
are independent if their purposes differ, or if their streams differ under the same key.

The values are part of the order and of exact resume: they never change between versions.
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class Purpose(IntEnum):
    """The purpose of a key, which is its first part."""

    EPOCH = 1  # the permutation of all records of an epoch
    SEGMENT = 2  # the permutation of the draws of a segment
    PASS = 3  # the permutation of one pass over a class
    CIRCLE = 4  # the circle in which the records of a class stand
    IMAGE = 5  # augmentation of one image
    ERASING_BOX = 6  # derived from the key of an image
    ERASING_NOISE = 7  # derived from the key of an image
    BATCH = 8  # augmentation of a whole batch: RandAugment, MixUp, CutMix
    TRANSFORM = 9  # the user's own function of an example (PyTorch)
    BLOCK_SEQUENCE = 16  # the sequence of the blocks of an epoch
    BLOCK_WINDOW = 17  # the permutation of the records of a window
    FOLD = 24  # the division of a split into folds
    STREAMED_SHARDS = 61  # the seed with which a stream shuffles its shards
    STREAMED_RECORDS = 62  # the seed of a stream's shuffle buffer


@unique
class ImageStream(IntEnum):
    """Streams under the key of one image. Each of the first two takes ten numbers, one for each try."""

    AREA = 0
    ASPECT_RATIO = 100
    TOP = 200
    LEFT = 300
    FLIP_LEFT_RIGHT = 400
    FLIP_TOP_BOTTOM = 401
    BRIGHTNESS = 600
    CONTRAST = 601
    SATURATION = 602
    HUE = 603
    ERASING = 700


@unique
class BatchStream(IntEnum):
    """Streams under the key of an example of a batch. Each of the first two takes one number an operation."""

    OPERATION = 0
    SIGN = 100
    IS_MIXED = 200
    IS_MIXUP = 201
    SHARE = 202
    BOX_TOP = 203
    BOX_LEFT = 204
