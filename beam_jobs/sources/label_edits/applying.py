"""Apply label edits to a listing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.schemas import DROPPED_LABEL, LABEL_EDIT, NO_CLASS, NO_LABEL, OTHER_CLASS, Status
from shardmill.beam_jobs.sources.label_edits.reading import SETTING, LabelEdits
from shardmill.beam_jobs.tables.lists import mask_of
from shardmill.infra.digests import digest_of
from shardmill.infra.format.contract import LabelEditsSummary
from shardmill.infra.near_names import near_names
from shardmill.infra.readable import counted, first_of

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
        *_new_classes({name for name in decided if name is not None}, classes),
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


def _new_classes(given: Collection[str], classes: Collection[str]) -> list[str]:
    """Warn of labels that no image had before: they may be mistyped."""
    new = sorted(set(given) - set(classes))
    if not new:
        return []
    near = near_names(new[0], sorted(classes))
    meant = f"; did you mean {near[0]!r}?" if near else ""
    many = "a label" if len(new) == 1 else f"{len(new):,} labels"
    return [f"{SETTING} gives {many} that the source does not have: {_first(new)}{meant}"]


def _first(names: Sequence[str]) -> str:
    return first_of([repr(name) for name in names], _SHOWN)
