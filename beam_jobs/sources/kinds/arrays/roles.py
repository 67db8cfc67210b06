"""Find the arrays that hold images and labels, by the words in their names.

``x_train.npy`` and ``y_train.npy``, ``images.npy`` and ``labels.npy``, ``train_images`` and ``train_labels``
in an ``.npz``, ``train-images-idx3-ubyte.gz`` and ``train-labels-idx1-ubyte.gz`` belong together: without the
word for the role, their names are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shardmill.beam_jobs.config import ColumnsConfig
from shardmill.beam_jobs.sources.kinds.arrays.found import FoundArray
from shardmill.beam_jobs.sources.roles import (
    ARRAY_WORDS,
    SPLIT_WORDS,
    asked_columns,
    needs_label,
    split_of_name,
    words_of,
)
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import LabelKind

_ROLES = ("label", "image", "split", "group")  # "image_labels" are labels
_FORMAT_WORD = re.compile(r"idx\d|ubyte")  # words in names of IDX files


@dataclass(frozen=True)
class LabelledImages:
    """Arrays that belong together, row by row.

    Attributes:
        images: [N, H, W] or [N, H, W, C].
        labels: [N] or [N, 1]; of kinds multi and targets [N, C]; None if the images have none.
        splits: [N], or None.
        groups: [N], or None.
        split: split of all rows, by the names of array and file; None if they give none.
        columns: name -> array [N] or [N, k] of a further feature.
    """

    images: FoundArray
    labels: FoundArray | None
    splits: FoundArray | None
    groups: FoundArray | None
    split: str | None
    columns: Mapping[str, FoundArray] = field(default_factory=dict)


def pair_arrays(
    arrays: Sequence[FoundArray], settings: ColumnsConfig, kind: LabelKind, *, splits_from_names: bool
) -> list[LabelledImages]:
    """Bring images and their labels together, in the order of the images' files and names.

    Args:
        arrays: arrays of all files.
        settings: names of arrays that the user gives.
        kind: kind of the labels.
        splits_from_names: whether the names of arrays and files give splits.

    Raises:
        ConfigError: images have no labels, or which arrays are meant cannot be told.
    """
    roles: dict[tuple[str, ...], dict[str, FoundArray]] = {}
    wanted = [
        *asked_columns(settings, kind),
        *sorted(_ROLES, key=lambda role: getattr(settings, role) is None),
    ]
    for array in arrays:
        for role in wanted:
            if (rest := _rest(array, role, settings)) is None:
                continue
            there = roles.setdefault(rest, {}).setdefault(role, array)
            if there is not array:
                raise ConfigError(
                    f"the arrays {where(there)} and {where(array)} could both hold the {role} of an image",
                    f"name one with --set source.columns.{role}=NAME, or choose files with source.files",
                )
            break
    found = [_labelled(there, arrays, settings, kind) for there in roles.values() if "image" in there]
    if found:
        return [replace(one, split=_split(one.images)) for one in found] if splits_from_names else found
    shown = ", ".join(array.in_words for array in arrays[:8])
    raise ConfigError(
        f"which array holds the images cannot be told; there are {shown}",
        "name them with --set source.columns.image=NAME and --set source.columns.label=NAME",
    )


def _labelled(
    there: dict[str, FoundArray], arrays: Sequence[FoundArray], settings: ColumnsConfig, kind: LabelKind
) -> LabelledImages:
    images, wanted = there["image"], asked_columns(settings, kind)
    if missing := [name for name in wanted if name not in there]:
        raise ConfigError(
            f"there is no array {missing[0]!r} for the images {where(images)}; there are "
            + ", ".join(array.in_words for array in arrays),
            "name another in source.columns.features",
        )
    if needs_label(settings, kind) and "label" not in there:
        others = ", ".join(array.in_words for array in arrays if array is not images)
        raise ConfigError(
            f"there are no labels for the images {where(images)}"
            + (f"; there are {others}" if others else ""),
            "name them as the images, with 'labels' or 'y' in place of 'images' or 'x'; or say "
            "--set source.columns.label=NAME",
        )
    check_images(images)
    for role, array in there.items():
        if role != "image":
            may_be_wide = role in wanted or (role == "label" and kind in ("multi", "targets"))
            _check_rows(images, array, role, may_be_wide)
    return LabelledImages(
        images,
        there.get("label") if kind != "none" else None,
        there.get("split"),
        there.get("group"),
        None,
        {name: there[name] for name in wanted},
    )


def _check_rows(images: FoundArray, array: FoundArray, role: str, may_be_wide: bool) -> None:
    """Check that an array has a row for each image, and one value in it unless it may be wide.

    Raises:
        ConfigError: it has not.
    """
    is_wide = len(array.shape) == 2 and array.shape[1] != 1
    has_values = 0 not in array.shape[1:]
    fits = array.shape[:1] == images.shape[:1] and len(array.shape) <= 2
    if fits and has_values and (may_be_wide or not is_wide):
        return
    count = images.shape[0]
    remedy = f"give one {role} for each image: an array of shape [{count}]"
    if role == "label" and is_wide and array.shape[0] == count:
        remedy += "; or say --set source.labels=multi (0 and 1 for each class) or targets (numbers)"
    raise ConfigError(
        f"the array {where(array)} has the shape {list(array.shape)}, but there are "
        f"{count:,} images in {where(images)}",
        remedy,
    )


def check_images(array: FoundArray) -> None:
    """Check that an array can hold images.

    Raises:
        ConfigError: it has another type or shape.
    """
    shape, dtype = array.shape, array.dtype
    if dtype != np.uint8:
        remedy = "store numbers from 0 to 255: images.astype('uint8')"
        if dtype.kind == "f":
            remedy += ", or (images * 255).round().astype('uint8') if they are from 0 to 1"
        raise ConfigError(f"the images {where(array)} are {dtype}, not uint8", remedy)
    if array.is_fortran:
        raise ConfigError(
            f"the images {where(array)} lie in Fortran order, so a single one cannot be read",
            "store numpy.ascontiguousarray(images)",
        )
    if len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3, 4)):
        if 0 in shape[1:]:
            raise ConfigError(f"the images {where(array)} have the shape {list(shape)}: no pixel")
        return
    remedy = "give [N, height, width] or [N, height, width, channels] with 1, 3 or 4 channels"
    if len(shape) == 4 and shape[1] in (1, 3, 4):
        remedy = "the channels come first; store images.transpose(0, 2, 3, 1)"
    elif len(shape) == 2:
        remedy = "the images are flat; store images.reshape(-1, height, width)"
    raise ConfigError(f"the images {where(array)} have the shape {list(shape)}", remedy)


def _rest(array: FoundArray, role: str, settings: ColumnsConfig) -> tuple[str, ...] | None:
    """Return the part of an array's name that images and labels share, without the word for a role.

    None if it does not have this role.
    """
    own = words_of(array.name)
    given: str | None = getattr(settings, role) if role in _ROLES else role
    wanted = [words_of(given)] if given is not None else [[word] for word in ARRAY_WORDS.get(role, ())]
    place = array.file.uri if array.member is not None else array.file.uri.rpartition("/")[0]
    for words in wanted:
        for at in range(len(own) - len(words) + 1):
            if words and own[at : at + len(words)] == words:
                rest = own[:at] + own[at + len(words) :]
                return (place, *(word for word in rest if not _FORMAT_WORD.fullmatch(word)))
    return None


def _split(images: FoundArray) -> str | None:
    """Return the split that the name of an array, or else of its file, gives."""
    of_array = {SPLIT_WORDS[word] for word in words_of(images.name) if word in SPLIT_WORDS}
    return of_array.pop() if len(of_array) == 1 else split_of_name(images.file.uri)


def where(array: FoundArray) -> str:
    """Return the place of an array, for people."""
    return f"{array.name!r} in {array.file.uri}" if array.member is not None else array.file.uri
