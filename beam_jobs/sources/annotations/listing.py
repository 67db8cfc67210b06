"""One row of the listing for each file and each annotated image, with the objects as features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig, PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import BAD_PATH, BROKEN_ROW, MISSING_FILE, NO_OBJECTS
from shardmill.beam_jobs.sources.annotations.collecting import (
    DROPPED,
    NO_AREA,
    OUTSIDE,
    AnnotatedImage,
    Annotations,
)
from shardmill.beam_jobs.sources.annotations.drawing import drawn_columns, with_drawn_masks
from shardmill.beam_jobs.sources.annotations.naming import find_names
from shardmill.beam_jobs.sources.annotations.reading import SETTING, AnnotationTable, find_annotations
from shardmill.beam_jobs.sources.annotations.shape_columns import lists_of_rows, shape_features
from shardmill.beam_jobs.sources.class_names import look_alikes, no_classes
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns
from shardmill.beam_jobs.sources.kinds.table import listed_files
from shardmill.beam_jobs.sources.kinds.table.matching import FoundFiles, find_files
from shardmill.beam_jobs.sources.kinds.table.rows import UNDERSTOOD_SCHEMA, reject
from shardmill.beam_jobs.sources.kinds.table.settling import settle
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.tables.columns import lists_of
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.codecs.geometry import clip_boxes, have_area
from shardmill.infra.errors import NotFoundError
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import (
    LABELS,
    LISTED_OBJECT_FEATURES,
)
from shardmill.infra.progress import log
from shardmill.infra.readable import counted

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def list_annotated(
    folder: SourceFolder,
    config: PrepareConfig,
    add_files: Callable[[Annotations, Sequence[AnnotationTable]], None],
    others: Sequence[str] = (),
) -> Listing:
    """List every file of a folder and every annotated image.

    Args:
        folder: the source.
        config: settings of the run.
        add_files: adds the images and objects of the annotation files, in the format of the kind.
        others: URIs of further files that belong to the annotations.

    Raises:
        NotFoundError: there is no such folder or annotation file, or no image that they name.
        ConfigError: an annotation file is not of the format.
    """
    tables = find_annotations(folder, config.source.objects)
    found = Annotations()
    add_files(found, tables)
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    own = [table.table.uri for table in tables if table.table.uri is not None]
    files = listed_files(walk, [*own, *others])
    found.warnings[:0] = walk.warnings()
    return listing_of(found, files, config)


def listing_of(found: Annotations, files: pa.Table, config: PrepareConfig) -> Listing:
    """Return one row for each file and each annotated image.

    Args:
        found: the images and their objects.
        files: LISTING_SCHEMA, the files of the source.
        config: settings of the run.

    Raises:
        NotFoundError: none of the images is there.
    """
    find_names(found, files)
    understood, left_out = _understood(found, config.source)
    rows, matched = find_files(understood, files)
    _check_found(rows, matched)
    listed = settle(files, rows, matched.files).listing(None)
    num_objects = len(found.names) + found.left_out.total()
    log(f"{counted(rows.num_rows, 'annotated image')} with {counted(num_objects, 'object')}")
    warnings = [*found.warnings, *_warnings(left_out, found, num_objects)]
    if config.source.label_kind == "mask":
        return Listing(with_drawn_masks(listed), warnings)
    classes = sorted({name for names in rows[PREFIX + LABELS].to_pylist() for name in names})
    warnings += no_classes(classes, "name it in source.columns.drop_labels")
    return Listing(listed, [*warnings, *look_alikes(classes, "name one in source.columns.merge_labels")])


_LABELS = Feature(name=LABELS, dtype="bytes", shape="variable", is_text=True)


def _understood(found: Annotations, source: SourceConfig) -> tuple[pa.Table, Counter[str]]:
    """Return the images as UNDERSTOOD_SCHEMA with features, and why how many objects are left out."""
    images, count = found.images, len(found.images)
    settings = source.columns
    kept, boxes, left_out = _kept_objects(found, settings, relative=source.has_relative_boxes)
    of_image = np.array(found.of_image, np.int64)
    lost = np.bincount(of_image[~kept], minlength=count) + np.array(
        [found.num_left_out[number] for number in range(count)], np.int64
    )
    order = np.flatnonzero(kept)[np.argsort(of_image[kept], kind="stable")]
    lengths = np.bincount(of_image[order], minlength=count)
    names = [settings.merge_labels.get(found.names[at], found.names[at]) for at in order.tolist()]
    starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    labels = [sorted(set(names[start:end])) for start, end in pairwise(starts)]
    rows = pa.table(
        {
            "row_uri": [image.row_uri for image in images],
            "who": [image.who for image in images],
            "path": [image.path for image in images],
            "label": [", ".join(each) for each in labels],
            "split": [image.split for image in images],
            "group": [image.group for image in images],
            "reason": [None] * count,
            "message": [None] * count,
        },
        UNDERSTOOD_SCHEMA,
    )
    if source.label_kind == "mask":
        columns = drawn_columns(found, boxes, names, order, lengths, source)
    else:
        values = (pa.array(labels, pa.list_(pa.string())), *_of_objects(found, boxes, names, order, lengths))
        sizes = pa.array([image.size for image in images], pa.list_(pa.int64()))
        columns = [*zip((_LABELS, *LISTED_OBJECT_FEATURES), (*values, pa.array(lost), sizes), strict=True)]
        columns += shape_features(found.shapes, boxes, found.names, order, lengths)
    for feature, column in columns:
        rows = rows.append_column(feature.arrow_field(PREFIX), column)
    if found.features is not None:
        for field in found.features.schema:
            rows = rows.append_column(field, found.features[field.name])
    rows = _without_bad_paths(rows, images)
    if source.objects.unannotated == "leave_out":
        rows = reject(rows, pa.array(lengths == 0), NO_OBJECTS, "it has no objects")
    return rows, left_out


def _of_objects(
    found: Annotations, boxes: npt.NDArray[np.float64], names: Sequence[str], order: Int64, lengths: Int64
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return boxes, names and crowds of the objects at ``order``: a list for each image."""
    return (
        lists_of_rows(boxes[order].astype(np.float32), lengths),
        lists_of(pa.array(names, pa.string()), lengths),
        lists_of_rows(np.array(found.crowds, np.int64)[order], lengths),
    )


def _without_bad_paths(rows: pa.Table, images: Sequence[AnnotatedImage]) -> pa.Table:
    """Give a reason to the images that cannot be looked up."""
    faults = pa.chunked_array([pa.array([image.fault for image in images], pa.string())])
    reasons = pa.array([None if image.fault is None else image.reason for image in images], pa.string())
    for reason in pc.unique(reasons.drop_null()).to_pylist():
        rows = reject(rows, pc.equal(reasons, reason), reason, faults)
    rows = reject(rows, pc.is_null(rows["path"]), BAD_PATH, "it names no file")
    outside = pc.or_(
        pc.match_substring_regex(rows["path"], r"://|(^|/)\.\.(/|$)"), pc.match_substring(rows["path"], "\0")
    )
    rows = reject(rows, outside, BAD_PATH, "it names ", rows["path"], ", which is outside of the source")
    at = rows.schema.get_field_index("path")
    is_lost = pc.is_in(rows["reason"], pa.array([BROKEN_ROW, BAD_PATH]))
    path = pc.if_else(is_lost, pa.scalar(None, pa.string()), rows["path"])
    return rows.set_column(at, rows.schema.field(at), path)


def _kept_objects(
    found: Annotations, settings: ColumnsConfig, *, relative: bool
) -> tuple[Mask, npt.NDArray[np.float64], Counter[str]]:
    """Return which objects stay (bool [N]), their boxes within their images (float64 [N, 4]), and the rest.

    The rest is counted by its reason, with the objects that could not be added.
    """
    boxes = np.array(found.boxes, np.float64).reshape(-1, 4)
    limits = ((1, 1) if relative else image.size or (np.inf, np.inf) for image in found.images)
    sizes = np.array(list(limits), np.float64).reshape(-1, 2)
    of_object = sizes[np.array(found.of_image, np.int64)]
    clipped = clip_boxes(boxes, of_object[:, 0], of_object[:, 1])
    dropped = np.fromiter((name in settings.drop_labels for name in found.names), np.bool_, len(found.names))
    no_area = ~dropped & ~have_area(boxes)
    outside = ~dropped & ~no_area & ~have_area(clipped)
    more = {DROPPED: dropped, NO_AREA: no_area, OUTSIDE: outside}
    left_out = found.left_out + Counter({why: int(np.count_nonzero(mask)) for why, mask in more.items()})
    return ~(dropped | no_area | outside), clipped, left_out


def _check_found(rows: pa.Table, matched: FoundFiles) -> None:
    if (matched.files >= 0).any():
        return
    if not rows.num_rows:
        raise NotFoundError("the annotation files name no image", f"look at {SETTING}")
    missing = rows.filter(pc.equal(rows["reason"], MISSING_FILE))
    first = (missing if missing.num_rows else rows)["message"][0]
    raise NotFoundError(
        f"no annotation names a file of the source; {first}",
        f"say in which folder of the source the images lie: the key images of {SETTING}"
        if missing.num_rows
        else "correct the annotations",
    )


def _warnings(left_out: Counter[str], found: Annotations, num_objects: int) -> list[str]:
    """Say how many objects and shapes are left out, why, which is the first, and what to do."""
    warnings = []
    if left_out.total():
        remedy = f"; {found.remedy}" if found.remedy and found.first else ""
        many = f"{left_out.total():,} of {counted(num_objects, 'object')} are left out"
        warnings.append(f"{many}: {_reasons(left_out, found.first)}{remedy}")
    if lost := found.shapes.lost:
        parts = _reasons(lost, found.shapes.first)
        warnings.append(f"broken shapes are left out of their objects: {parts}")
    for what, counts in found.skipped.items():
        reasons = _reasons(
            {why: count for why, (count, _) in counts.items()},
            {why: first for why, (_, first) in counts.items()},
        )
        warnings.append(f"{counted(sum(count for count, _ in counts.values()), what)} left out: {reasons}")
    return warnings


def _reasons(counts: Mapping[str, int], first: Mapping[str, str]) -> str:
    named = {why: f" (first {first[why]})" if why in first else "" for why in counts}
    return ", ".join(f"{count:,} {why}{named[why]}" for why, count in sorted(counts.items()) if count)
