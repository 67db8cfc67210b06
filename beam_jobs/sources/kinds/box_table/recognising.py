"""Recognise tables of boxes by the names of their columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from shardmill.beam_jobs.config import BoxTableConfig
from shardmill.beam_jobs.sources.annotations.collecting import (
    HEAD_BYTES,
    MAX_FILES,
    different_splits,
    folder_of_stem,
    split_with_year,
)
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.kinds.table.delimited import cut_head
from shardmill.beam_jobs.sources.kinds.table.recognising import TABLE_ENDINGS, columns_of, list_columns_of
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.roles import LABEL_NAMES, PATH_NAMES
from shardmill.infra.errors import UsageError

# https://storage.googleapis.com/openimages/web/download_v7.html
_OPEN_IMAGES = {"box_columns": ("XMin", "YMin", "XMax", "YMax"), "units": "relative"}
_OF_MASKS = {"box_columns": ("BoxXMin", "BoxYMin", "BoxXMax", "BoxYMax"), "units": "relative"}
_CLASS_LINE = re.compile(r"/m/[0-9a-z_]+,[^,\r\n]+")
_MOST_LEVELS = 2  # of folders above a table
_BOX_LISTS = ("boxes", "bboxes", "bbox", "box")
_LABEL_LISTS = ("labels", "classes", "categories", "class_names", *LABEL_NAMES)
_BoxSettings = tuple[dict[str, str], dict[str, Any]]  # of source.columns, and of source.objects.table


def recognise_box_table(glance: Glance, settings: BoxTableConfig) -> Recognised | None:
    """Return the tables with a column of images, one of classes, and four of edges of boxes or one of lists.

    Of several tables the names must give different splits: ``train-annotations-bbox.csv``.

    Raises:
        UsageError: a table has boxes as lists, and the settings do not say what their numbers mean.
    """
    found = {}
    for uri in [uri for uri in glance.ending_in(*TABLE_ENDINGS) if uri.count("/") <= _MOST_LEVELS][
        :MAX_FILES
    ]:
        columns = columns_of(glance, uri, floats=True)
        if (named := _columns_of_boxes(columns) or _column_of_lists(glance, uri, columns)) is not None:
            found[uri] = named
    without = {uri: named for uri, named in found.items() if "mask" not in named[0]}
    found, masks = (without, [uri for uri in found if uri not in without]) if without else (found, [])
    splits = different_splits(list(found))
    if not glance.images or not found or any(named != found[next(iter(found))] for named in found.values()):
        return None
    if len(found) > 1 and splits is None:
        return None
    roles, table = next(iter(found.values()))
    _check_meaning(next(iter(found)), table["box_columns"], settings)
    parts: list[dict[str, str | None]] = [
        {"file": uri, "images": _folder_of_row(glance, uri, roles["image"])} for uri in found
    ]
    names = ", ".join(table["box_columns"])
    why = f"{quoted(list(found))} {'has' if len(found) == 1 else 'have'} the columns of boxes {names}"
    if len(found) > 1 and splits is not None:
        parts = [{**part, "split": split} for part, split in zip(parts, splits, strict=True)]
        why += ", and their names give the splits"
    if roles["image"] == "ImageID":
        parts, names_file = _beside_open_images(glance, parts)
        table = {**table, **names_file}
        more = [*names_file.values(), *(str(part["image_list"]) for part in parts if "image_list" in part)]
        why += (
            f"; {quoted(more)} {'tells' if len(more) == 1 else 'tell'} of classes and images" if more else ""
        )
    why += f"; not read: {quoted(masks)}" if masks else ""
    objects = {"annotations": tuple(parts), "table": table}
    return Recognised(why, {"objects": objects, "columns": roles}, is_certain=True)


def _columns_of_boxes(columns: Sequence[str]) -> _BoxSettings | None:
    """Return the settings of a table with these columns, if they are those of boxes."""
    if set(_OPEN_IMAGES["box_columns"]) | {"ImageID", "LabelName"} <= set(columns):
        crowd = {"crowd_column": "IsGroupOf"} if "IsGroupOf" in columns else {}
        return {"image": "ImageID", "label": "LabelName"}, {**_OPEN_IMAGES, **crowd}
    if {*_OF_MASKS["box_columns"], "ImageID", "LabelName", "MaskPath"} <= set(columns):
        return {"image": "ImageID", "label": "LabelName", "mask": "MaskPath"}, dict(_OF_MASKS)
    known = {name.strip().lower(): name for name in reversed(columns)}
    edges = tuple(known[name] for name in ("xmin", "ymin", "xmax", "ymax") if name in known)
    path = next((known[name] for name in PATH_NAMES if name in known), None)
    label = next((known[name] for name in LABEL_NAMES if name in known), None)
    if len(edges) < 4 or path is None or label is None:
        return None
    sizes = tuple(known[name] for name in ("height", "width") if name in known)
    size_columns = {"size_columns": sizes} if len(sizes) == 2 else {}
    return {"image": path, "label": label}, {"box_columns": edges, **size_columns}


def _column_of_lists(glance: Glance, uri: str, columns: Sequence[str]) -> _BoxSettings | None:
    """Return the settings of a table that has boxes as lists: those of an object, or of all of an image."""
    known = {name.strip().lower(): name for name in reversed(columns)}
    lists = {name.strip().lower(): name for name in reversed(list_columns_of(glance, uri))}
    path = next((known[name] for name in PATH_NAMES if name in known and name not in lists), None)
    boxes = next((lists[name] for name in _BOX_LISTS if name in lists), None)
    label = next((lists[name] for name in _LABEL_LISTS if name in lists), None)
    label = label or next((known[name] for name in LABEL_NAMES if name in known), None)
    if path is None or boxes is None or label is None:
        return None
    return {"image": path, "label": label}, {"box_columns": (boxes,)}


def _check_meaning(uri: str, box_columns: Sequence[str], settings: BoxTableConfig) -> None:
    """Check that the meaning of the four numbers is known: the name of a column of lists does not tell it.

    Raises:
        UsageError: it is not.
    """
    if len(box_columns) == 1 and "box_format" not in settings.model_fields_set:
        raise UsageError(
            f"{uri} has boxes as lists in its column {box_columns[0]!r}, and does not say what their numbers "
            "mean",
            "say it with --set source.objects.table.box_format=xyxy (the edges; or xywh, yxyx, cxcywh), and "
            "units=relative if they are not pixels; --source-kind table takes no boxes",
        )


def _folder_of_row(glance: Glance, uri: str, column: str) -> str:
    """Return the folder of the image that the first row of a table of text names; "" if it is not found."""
    if not uri.lower().endswith((".csv", ".tsv")):
        return ""
    lines = glance.head(uri, HEAD_BYTES).decode("utf-8-sig", "replace").splitlines()[:2]
    header, *rows = cut_head(lines)
    name = dict(zip(header, rows[0], strict=False)).get(column, "").removeprefix("./") if rows else ""
    return folder_of_stem(name, uri, glance) if name else ""


def _beside_open_images(
    glance: Glance, parts: list[dict[str, str | None]]
) -> tuple[list[dict[str, str | None]], dict[str, str]]:
    """Return the parts with their lists of images, and the setting of the file of class names, if there are.

    ``validation-images.csv`` lists the images of a split, ``class-descriptions-boxable.csv`` names classes.
    """
    names: dict[str, str] = {}
    lists: dict[str | None, str] = {}
    boxes = {part["file"] for part in parts}
    tables = [uri for uri in glance.ending_in(".csv") if uri.count("/") <= _MOST_LEVELS]
    for uri in [uri for uri in tables if uri not in boxes]:
        first = glance.head(uri, HEAD_BYTES).decode("utf-8-sig", "replace").splitlines()[:1]
        if first and _CLASS_LINE.fullmatch(first[0]):
            names.setdefault("names_file", uri)
        elif {"ImageID", "OriginalURL"} <= set(columns_of(glance, uri)):
            lists[split_with_year(uri)] = uri
    of_parts = [lists.get(split_with_year(str(part["file"]))) for part in parts]
    found = [
        part if uri is None else {**part, "image_list": uri}
        for part, uri in zip(parts, of_parts, strict=True)
    ]
    return found, names
