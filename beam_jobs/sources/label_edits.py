"""Corrected labels of single images: CSV files that ``source.label_edits`` names, applied to the listing.

A file has a row for each image, as ``label-errors.csv`` of a training has. A row names an image by its
``source_uri``. ``label`` is its right label. ``decision`` says what to do where no label is written:
``accept`` takes the ``suggested_label``, ``drop`` leaves the image out, and ``keep`` changes nothing. A row
with neither was not decided, so a list of suggestions changes nothing by itself. ``data_set`` says of which
of several data sets a row is; those of all decided rows must be the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.reasons import DROPPED_LABEL, LABEL_EDIT, NO_CLASS, NO_LABEL, OTHER_CLASS
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_files_named
from shardmill.beam_jobs.tables.columns import mask_of
from shardmill.infra.digests import digest_of
from shardmill.infra.edited_csv import edited_rows
from shardmill.infra.errors import DataError
from shardmill.infra.format.contract import LabelEditsSummary
from shardmill.infra.near_names import near_names
from shardmill.infra.readable import counted, first_of

SETTING: Final = "source.label_edits"
DECISIONS: Final = ("accept", "drop", "keep")
_NEEDED, _LABEL, _DECISION, _SUGGESTED = "source_uri", "label", "decision", "suggested_label"
_DATA_SET = "data_set"
_COLUMNS = (
    _NEEDED,
    _LABEL,
    _DECISION,
    _SUGGESTED,
    _DATA_SET,
    "id",
    "split",
    "given_label",
    "score",
    "comment",
)
_REMEDY = f"a row needs a {_LABEL}, or a {_DECISION}: {', '.join(DECISIONS)}; or leave both empty"


@dataclass(frozen=True)
class LabelEdits:
    """The decisions of all files.

    Attributes:
        decided: URI of an image -> its label; None to leave it out.
        num_undecided: rows without a decision, and rows that keep the label.
    """

    decided: Mapping[str, str | None] = field(default_factory=dict)
    num_undecided: int = 0


def read_label_edits(source: SourceFolder, given: str) -> LabelEdits:
    """Read the files that ``source.label_edits`` names.

    Args:
        source: the source.
        given: relative to the source, an absolute path, or a URI; a pattern names several files.

    Raises:
        NotFoundError: there is no such file.
        DataError: a file is no such CSV, a row makes no sense, two rows contradict each other, or they are of
            several data sets.
    """
    decided: dict[str, str | None] = {}
    places: dict[str, str] = {}
    of_set: dict[str, str] = {}  # data set -> place of its first decided row
    num_undecided = 0
    for file in find_files_named(source, given, SETTING):
        for line, row in _rows(file):
            place = f"line {line:,} of {file.name}"
            uri = row[_NEEDED]
            if not uri:
                raise DataError(f"{place} has no {_NEEDED}", "name the image, as the index of a version does")
            decides, label = _decision(row, place)
            if not decides:
                num_undecided += 1
                continue
            _check_one_data_set(row.get(_DATA_SET, "").partition("@")[0], place, of_set)
            if uri in decided and decided[uri] != label:
                raise DataError(
                    f"{place} contradicts {places[uri]} about {uri!r}: {_words(label)}, and "
                    f"{_words(decided[uri])}",
                    "remove the older row",
                )
            decided[uri] = label
            places.setdefault(uri, place)
    return LabelEdits(decided, num_undecided)


def _check_one_data_set(name: str, place: str, of_set: dict[str, str]) -> None:
    """Note the data set of a row; empty: not said.

    Raises:
        DataError: rows before it are of another one.
    """
    if name:
        of_set.setdefault(name, place)
    if len(of_set) > 1:
        first, other = of_set
        raise DataError(
            f"{of_set[first]} is of the data set {first}, {of_set[other]} of {other}: their images may have "
            f"the same {_NEEDED}",
            f"make a file for each, with the rows of one {_DATA_SET}",
        )


def files_of_edits(source: SourceFolder, given: str) -> list[str]:
    """Return the URIs of the files of label edits that lie in the source: they are no inputs.

    Raises:
        NotFoundError: there is none. ConfigError: the path is wrong.
    """
    return [file.uri for file in find_files_named(source, given, SETTING) if file.uri is not None]


def _decision(row: Mapping[str, str], place: str) -> tuple[bool, str | None]:
    """Return whether a row decides anything, and the label; None to leave the image out."""
    label, decision = row.get(_LABEL, ""), row.get(_DECISION, "").lower()
    if decision and decision not in DECISIONS:
        raise DataError(f"{place}: {row[_DECISION]!r} is no {_DECISION}", _REMEDY)
    if label and decision:
        raise DataError(f"{place} has the {_LABEL} {label!r} and the {_DECISION} {decision!r}", _REMEDY)
    if decision == "accept":
        label = row.get(_SUGGESTED, "")
        if not label:
            raise DataError(f"{place} accepts a {_SUGGESTED}, and has none", f"write the {_LABEL} instead")
    if any(mark in label for mark in "\r\n"):
        raise DataError(f"{place}: the label {label!r} has several lines", "close the quotes before it")
    return bool(label) or decision == "drop", label or None


def _rows(file: Table) -> Iterator[tuple[int, dict[str, str]]]:
    return edited_rows(file.folder.read_bytes(file.path), file.name, _check_header)


def _check_header(name: str, names: Sequence[str]) -> None:
    for column in names:
        if column not in _COLUMNS:
            near = near_names(column, _COLUMNS)
            raise DataError(
                f"{name} has a column {column!r}, which label edits do not know",
                f"did you mean {near[0]!r}?" if near else f"they have {', '.join(_COLUMNS)}",
            )
    if _NEEDED not in names or not {_LABEL, _DECISION} & set(names):
        raise DataError(
            f"{name} has no column {_NEEDED if _NEEDED not in names else _LABEL!r}",
            f"label edits need {_NEEDED} and {_LABEL} or {_DECISION}, as a label-errors.csv has them",
        )


def _words(label: str | None) -> str:
    return "leave it out" if label is None else f"label {label!r}"


_SHOWN = 3
# A label is what these inputs lack, or have one that is not wanted: an edit can give them another.
_CURABLE = pa.array([DROPPED_LABEL, NO_CLASS, NO_LABEL, OTHER_CLASS], pa.string())


@dataclass(frozen=True)
class Edited:
    """A listing with label edits.

    Attributes:
        table: LISTING_SCHEMA and further columns, as before.
        summary: summary of the edits, for the manifest.
        warnings: a sentence each.
    """

    table: pa.Table
    summary: LabelEditsSummary
    warnings: list[str]


def apply_edits(table: pa.Table, edits: LabelEdits, wanted: Collection[str] | None) -> Edited:
    """Give images the labels that edits decide, and leave out those that are to be dropped.

    An image without a label, or with one that the settings leave out, becomes an image to read by its edit.
    Inputs that cannot be used for another reason stay as they are.

    Args:
        table: LISTING_SCHEMA and further columns, sorted by URI.
        edits: the decisions.
        wanted: classes to keep; None for all.
    """
    uris = sorted(edits.decided)
    decided = [edits.decided[uri] for uri in uris]
    at = pc.index_in(table["uri"], pa.array(uris, pa.string()))
    label = pa.array(decided, pa.string()).take(at.combine_chunks())
    is_named = mask_of(pc.is_valid(at))
    # A row of a table that names no file has nothing that could be read.
    has_image = mask_of(pc.or_(pc.greater(table["size_bytes"], 0), pc.not_equal(table["mtime_ns"], 0)))
    if "container" in table.schema.names:
        has_image |= mask_of(pc.is_valid(table["container"]))
    is_curable = mask_of(pc.is_in(table["reason"], _CURABLE)) & has_image
    is_usable = mask_of(pc.equal(table["status"], Status.TO_READ)) | is_curable
    applies = is_named & is_usable
    is_dropped = applies & ~mask_of(pc.is_valid(label))
    is_labelled = applies & ~is_dropped
    before = table["label"].cast(pa.string())
    differs = is_labelled & ~mask_of(pc.equal(label, before))
    classes = {name for name in pc.unique(before.filter(pa.array(is_usable))).to_pylist() if name is not None}
    columns = {"label": pc.if_else(pa.array(is_labelled), label, before)}
    is_other = np.zeros(len(is_named), np.bool_)
    if wanted is not None:
        is_other = is_labelled & ~mask_of(pc.is_in(label, pa.array(sorted(wanted), pa.string())))
    settled = (
        (is_labelled, Status.TO_READ, None, None),
        (is_other, Status.FILTERED, OTHER_CLASS, "filter.classes does not name its class"),
        (is_dropped, Status.FILTERED, LABEL_EDIT, f"{SETTING} leaves it out"),
    )
    for name, place in (("status", 1), ("reason", 2), ("message", 3)):
        column = table[name]
        for case in settled:
            value = pa.scalar(case[place], table.schema.field(name).type)
            column = pc.if_else(pa.array(case[0]), value, column)
        columns[name] = column
    for name, column in columns.items():
        kind = table.schema.field(name).type
        same_kind = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), same_kind)
    warnings = [
        *_unmatched(table["uri"], uris, is_named, is_usable),
        *new_classes(SETTING, {name for name in decided if name is not None}, classes),
    ]
    summary = LabelEditsSummary(
        sha256=digest_of(list(zip(uris, decided, strict=True)), length=64),
        num_labels=int(np.count_nonzero(differs)),
        num_left_out=int(np.count_nonzero(is_dropped)),
    )
    return Edited(table, summary, warnings)


def _unmatched(
    listed: pa.ChunkedArray,
    uris: Sequence[str],
    is_named: npt.NDArray[np.bool_],
    is_usable: npt.NDArray[np.bool_],
) -> list[str]:
    """Warn of edits that name no image, and of those that name inputs which cannot be used anyway."""
    found = set(listed.filter(pa.array(is_named)).to_pylist())
    lost = [uri for uri in uris if uri not in found]
    warnings = []
    if lost:
        warnings.append(
            f"{counted(len(lost), 'row')} of {SETTING} {'names' if len(lost) == 1 else 'name'} no image of "
            f"the source: {_first(lost)}"
        )
    unused = listed.filter(pa.array(is_named & ~is_usable)).to_pylist()
    if unused:
        warnings.append(
            f"{counted(len(unused), 'row')} of {SETTING} {'has' if len(unused) == 1 else 'have'} no effect, "
            f"because the image is left out for another reason: {_first(unused)}"
        )
    return warnings


def new_classes(giver: str, given: Collection[str], classes: Collection[str]) -> list[str]:
    """Warn of labels that no image had before: they may be mistyped."""
    new = sorted(set(given) - set(classes))
    if not new:
        return []
    near = near_names(new[0], sorted(classes))
    meant = f"; did you mean {near[0]!r}?" if near else ""
    many = "a label" if len(new) == 1 else f"{len(new):,} labels"
    return [f"{giver} gives {many} that the source does not have: {_first(new)}{meant}"]


def _first(names: Sequence[str]) -> str:
    return first_of([repr(name) for name in names], _SHOWN)
