"""Images in one folder and their masks in another, with the same paths and names.

::

    images/…/a.jpg          masks/…/a.png              the splits are made here
    train/images/a.jpg      train/masks/a.png          the splits are given, by the folder above
    images/train/a.jpg      masks/train/a.png          or by the folder below
    train/a.jpg             train/a_mask.png           images = masks = ".", mask_suffix = "_mask"

``source.masks`` names other folders (JPEGImages and SegmentationClass of Pascal VOC), and what the names of
images and masks end in. A file that is neither is left out.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import BROKEN_ROW, MASK_FILE, OTHER_FILE
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.annotations.image_sets import ImageSets, place_of_lists, read_image_sets
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns
from shardmill.beam_jobs.sources.kinds.table import listed_files
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.masks import FolderPairs, pair, with_reason, with_splits
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.errors import NotFoundError
from shardmill.infra.progress import log
from shardmill.infra.readable import counted

_OF_VOC = "SegmentationClass"
_VOC_SETS = "ImageSets/Segmentation"
_OF_CITYSCAPES = {"images": "leftImg8bit", "masks": "gtFine", "image_suffix": "_leftImg8bit"}
_USUAL_FOLDERS = (
    {"images": "images", "masks": "masks"},
    {"images": "JPEGImages", "masks": _OF_VOC},
    {**_OF_CITYSCAPES, "mask_suffix": "_gtFine_labelIds"},
    {**_OF_CITYSCAPES, "mask_suffix": "_gtFine_labelTrainIds"},
    {"images": "images", "masks": "annotations"},
)
_OF_ROBOFLOW = {"images": ".", "masks": ".", "mask_suffix": "_mask"}  # beside each other
# The classes that are evaluated, and their numbers in labelIds; their order is that of labelTrainIds:
# https://github.com/mcordts/cityscapesScripts/blob/master/cityscapesscripts/helpers/labels.py
_CITYSCAPES = {
    "road": 7, "sidewalk": 8, "building": 11, "wall": 12, "fence": 13, "pole": 17, "traffic light": 19,
    "traffic sign": 20, "vegetation": 21, "terrain": 22, "sky": 23, "person": 24, "rider": 25, "car": 26,
    "truck": 27, "bus": 28, "train": 31, "motorcycle": 32, "bicycle": 33,
}  # fmt: skip
_MOST_BYTES = 1 << 20  # of a table of classes


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the mask of each image.

    Raises:
        NotFoundError: there is no such folder, or no image with a mask in it.
    """
    settings = config.source.masks
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    sets = read_image_sets(folder, settings.image_sets, "source.masks.image_sets")
    files = listed_files(walk, [table.uri for table in sets.files if table.uri is not None])
    found = FolderPairs(settings)
    is_read = (files["status"].to_numpy() == Status.TO_READ).tolist()
    for row, (uri, is_usable) in enumerate(zip(files["uri"].to_pylist(), is_read, strict=True)):
        if is_usable:
            found.add(row, uri)
    if config.source.layout != "classes":
        files = with_splits(files, found)
    files = _with_sets(files, found, sets)
    words = f"neither an image in a folder {settings.images} nor a mask in a folder {settings.masks}"
    files = with_reason(files, np.array(found.others, np.int64), OTHER_FILE, words)
    listing, num_pairs = pair(files, found, settings)
    if not num_pairs:
        raise NotFoundError(
            f"{folder.uri} has {counted(len(found.images), 'image')} in folders {settings.images}, "
            f"{counted(len(found.masks), 'mask')} in folders {settings.masks}, and no pair of the same name",
            "name the folders and the ends of names: source.masks.images, masks, image_suffix, mask_suffix",
        )
    log(f"{counted(num_pairs, 'image')} with a mask")
    names = [key.stem for key in found.images.keys() & found.masks.keys()]
    return Listing(listing, [*walk.warnings(), *sets.warnings(names)])


def _with_sets(files: pa.Table, found: FolderPairs, sets: ImageSets) -> pa.Table:
    """Set the splits that lists of images give; images in several of them are not read."""
    if not sets.files:
        return files
    splits = files["split"].to_pylist()
    unclear: dict[int, str] = {}
    for key, rows in found.images.items():
        for row in rows:
            splits[row] = sets.split_of(key.stem, splits[row])
            if (contradiction := sets.contradiction_of(key.stem)) is not None:
                unclear[row] = contradiction
    keys = [key for key in found.images if sets.contradiction_of(key.stem) is not None]
    masks = sorted(row for key in keys for row in found.masks.pop(key, []))
    for key in keys:
        del found.images[key]
    at = files.schema.get_field_index("split")
    files = files.set_column(at, files.schema.field(at), pa.array(splits, pa.string()))
    words = "the mask of an image that is in several lists"
    files = with_reason(files, np.array(masks, np.int64), MASK_FILE, words)
    numbers = np.array(sorted(unclear), np.int64)
    return with_reason(files, numbers, BROKEN_ROW, pa.array([unclear[row] for row in sorted(unclear)]))


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise folders of images and of masks with the same names.

    If the settings name the classes of masks, nothing else that describes the images counts.
    """
    if settings.labels not in (None, "mask"):
        return None
    named = {"images": settings.masks.images, "masks": settings.masks.masks}
    for folders in (named, *_USUAL_FOLDERS, *([_OF_ROBOFLOW] if _classes_of_roboflow(glance) else ())):
        seen = FolderPairs(settings.masks.model_copy(update=folders))
        uris = glance.images
        for row, uri in enumerate(uris):
            seen.add(row, uri)
        if pairs := seen.images.keys() & seen.masks.keys():
            found: dict[str, Any] = dict(folders)
            rows = [row for key in pairs for row in (*seen.images[key], *seen.masks[key])]
            places = {uris[row].rpartition("/")[0] for row in rows}
            why = f"{folders['images']} and {folders['masks']} hold files of the same names"
            if not settings.masks.classes:
                classes, note = _classes(folders, glance)
                found, why = found | classes, why + note
            is_asked = bool(settings.masks.classes or found.get("classes"))
            if folders["masks"] == _OF_VOC:
                more, note = _of_voc(glance)
                found, why = found | more, why + note
            return Recognised(
                why, {"masks": found}, is_certain=is_asked, is_complete=is_asked, image_folders=places
            )
    return None


def _classes(folders: Mapping[str, str], glance: Glance) -> tuple[dict[str, Any], str]:
    """Return the classes of Cityscapes, or those in a table of ADE20K, and a sentence about them."""
    suffix = folders.get("mask_suffix", "")
    if folders is _OF_ROBOFLOW:
        uri, classes = next(iter(_classes_of_roboflow(glance).items()))
        return {"classes": classes}, f"; {uri} names the classes"
    if suffix.endswith("_labelTrainIds"):
        return {"classes": list(_CITYSCAPES)}, "; the classes are those of Cityscapes"
    if suffix:
        others = [value for value in (*range(34), 255) if value not in _CITYSCAPES.values()]
        note = "; the classes are the 19 of Cityscapes that are evaluated"
        return {"classes": _CITYSCAPES, "ignore": others}, note
    for uri in glance.ending_in(".txt"):
        rows = csv.DictReader(
            glance.head(uri, _MOST_BYTES).decode("utf-8", "replace").splitlines(), delimiter="\t"
        )
        if {"Idx", "Name"} <= set(rows.fieldnames or ()):  # objectInfo150.txt
            classes = {row["Name"]: int(row["Idx"]) for row in rows if (row["Idx"] or "").isdigit()}
            return {"classes": classes, "ignore": [0]}, f"; {uri} names the classes, and 0 is none of them"
    return {}, ""


def _classes_of_roboflow(glance: Glance) -> dict[str, dict[str, int]]:
    """Return the tables of classes beside masks of Roboflow -> name -> value of each class."""
    found = {}
    for uri in [uri for uri in glance.ending_in(".csv") if uri.rpartition("/")[2] == "_classes.csv"]:
        lines = glance.head(uri, _MOST_BYTES).decode("utf-8-sig", "replace").splitlines()
        rows = [[value.strip() for value in row] for row in csv.reader(lines)]
        if rows and rows[0] == ["Pixel Value", "Class"]:
            found[uri] = {row[1]: int(row[0]) for row in rows[1:] if len(row) == 2 and row[0].isdecimal()}
    return found


def _of_voc(glance: Glance) -> tuple[dict[str, Any], str]:
    """Return the settings that a Pascal VOC source needs, and a sentence about them.

    Most of its images have no mask, and lists name those that have.
    """
    place = place_of_lists(glance.files, _VOC_SETS)
    if place is None:
        return {"unmasked": "leave_out"}, "; images without a mask are left out"
    note = f"; images without a mask are left out, and the lists in {place} give the splits"
    return {"unmasked": "leave_out", "image_sets": place}, note
