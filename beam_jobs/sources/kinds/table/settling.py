"""One row of the listing for each file, and for each row of the table that stands for no file.

A file gets label, split and group of the first good row that names it, or of the first row if none is good.
Good rows of one file that do not say the same contradict each other, and the file is not used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.reasons import CONTRADICTION, NOT_IN_TABLE, OTHER_CLASS, REPEATED_ROW
from shardmill.beam_jobs.schemas import LISTING_SCHEMA
from shardmill.beam_jobs.sources.kinds.table.rows import reject_some
from shardmill.beam_jobs.sources.kinds.table.rules import classes_of
from shardmill.beam_jobs.sources.kinds.table.typed.labels import MASK_PATH
from shardmill.beam_jobs.sources.listing import status_of
from shardmill.beam_jobs.tables.columns import mask_of, sorted_by
from shardmill.beam_jobs.tables.features import (
    PREFIX,
    equal_rows,
    feature_columns,
    features_of,
    with_features,
)
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import LABELS, TARGETS, LabelKind

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SAID = ("label", "split", "group")


@dataclass(frozen=True)
class Settled:
    """Files and rows, brought together.

    Attributes:
        files: LISTING_SCHEMA, without labels.
        rows: UNDERSTOOD_SCHEMA and columns of features, with the reasons of repeated and contradicting rows.
        representative: int64 [files], the row that stands for each file; -1 if no row names it.
    """

    files: pa.Table
    rows: pa.Table
    representative: Int64

    @property
    def _features(self) -> list[Feature]:
        return features_of(self.rows)

    @property
    def _said(self) -> tuple[str, ...]:
        return (*_SAID, *feature_columns(self._features))

    def classes(self, kind: LabelKind) -> list[str]:
        """Return the classes of the rows that can be used, sorted; none if the labels are no classes."""
        return classes_of(self.rows, kind)

    def listing(self, wanted: frozenset[str] | None) -> pa.Table:
        """Return all files and rows: LISTING_SCHEMA and columns of features, sorted by URI.

        Args:
            wanted: classes to keep; None for all.
        """
        stands = np.zeros(self.rows.num_rows, np.bool_)
        stands[self.representative[self.representative >= 0]] = True
        files = self._files(wanted)
        if stands.all():
            return files
        rows = self.rows.filter(pa.array(~stands))
        listed = _listed(
            {
                "uri": rows["row_uri"],
                "size_bytes": pa.array(np.zeros(rows.num_rows, np.int64)),
                "mtime_ns": pa.array(np.zeros(rows.num_rows, np.int64)),
                **{name: rows[name] for name in (*self._said, "reason", "message")},
            },
            self._features,
        )
        return sorted_by(pa.concat_tables([files, listed]), "uri")

    def _files(self, wanted: frozenset[str] | None) -> pa.Table:
        """The files, with what their rows say: LISTING_SCHEMA and columns of features."""
        is_named = self.representative >= 0
        rows = self.rows.take(pa.array(self.representative, mask=~is_named))
        reasons, messages = rows["reason"], rows["message"]
        reasons = pc.if_else(pa.array(is_named), reasons, pa.scalar(NOT_IN_TABLE))
        messages = pc.if_else(pa.array(is_named), messages, pa.scalar("no row of the table names it"))
        if wanted is not None:
            keeps = pc.is_in(rows["label"], pa.array(sorted(wanted), pa.string()))
            other = pc.and_(pc.is_null(reasons), pc.invert(keeps))
            reasons = pc.if_else(other, pa.scalar(OTHER_CLASS), reasons)
            text = pa.scalar("filter.classes does not name its class")
            messages = pc.if_else(other, text, messages)
        columns = {name: self.files[name] for name in ("uri", "size_bytes", "mtime_ns")}
        columns |= {name: rows[name] for name in self._said}
        # What the walk found comes first: such a file is not read, whatever a row says of it.
        columns["reason"] = pc.coalesce(self.files["reason"], reasons)
        is_settled = pc.is_valid(self.files["reason"])
        columns["message"] = pc.if_else(is_settled, self.files["message"], messages)
        return _listed(columns, self._features)


def settle(files: pa.Table, rows: pa.Table, named: Int64) -> Settled:
    """Find the row that stands for each file, and the rows that repeat or contradict it.

    Args:
        files: LISTING_SCHEMA.
        rows: UNDERSTOOD_SCHEMA and columns of features.
        named: int64 [rows], the file that each row names; -1 if there is none.
    """
    representative, later = _representatives(rows, named, files.num_rows)
    first = representative[named[later]]
    differs = _differs(rows, later, first)
    values = _what_they_say(rows)
    quoted = pc.binary_join_element_wise(rows["who"], " (", values, ")", "")

    def of(column: pa.ChunkedArray, numbers: Int64) -> pa.ChunkedArray:
        return column.take(pa.array(numbers))

    repeated, original = later[~differs], first[~differs]
    contradicting, contradicted = later[differs], first[differs]
    rows = reject_some(rows, repeated, REPEATED_ROW, "it says the same as ", of(quoted, original))
    alike = pc.equal(of(values, contradicting), of(values, contradicted))
    others = pc.if_else(pc.fill_null(alike, False), "; their objects or features differ", "")
    why = ("it says ", of(values, contradicting), " and contradicts ", of(quoted, contradicted), others)
    rows = reject_some(rows, contradicting, CONTRADICTION, *why)
    contradicted, at = np.unique(contradicted, return_index=True)  # the first row that contradicts each
    others = others.take(pa.array(at))
    why = ("it says ", of(values, contradicted), ", contradicted by ", of(quoted, contradicting[at]), others)
    rows = reject_some(rows, contradicted, CONTRADICTION, *why)
    return Settled(files, rows, representative)


def _representatives(rows: pa.Table, named: Int64, num_files: int) -> tuple[Int64, Int64]:
    """Return the row that stands for each file, and the good rows that name a file after it.

    Returns:
        int64 [files], -1 if no row names the file; and int64 [N], numbers of rows.
    """
    is_good = mask_of(pc.is_null(rows["reason"]))
    naming = np.flatnonzero(named >= 0)
    # The good rows of each file first, in the order of the table.
    order = naming[np.lexsort((naming, ~is_good[naming], named[naming]))]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = named[order[1:]] != named[order[:-1]]
    representative = np.full(num_files, -1, np.int64)
    representative[named[order[is_first]]] = order[is_first]
    return representative, order[~is_first & is_good[order]]


def _differs(rows: pa.Table, later: Int64, first: Int64) -> Mask:
    """Return whether rows say something else than the rows that stand for the same files: bool [later]."""
    differs = np.zeros(len(later), np.bool_)
    for name in _SAID:
        codes = pc.fill_null(rows[name].combine_chunks().dictionary_encode().indices, -1).to_numpy()
        differs |= codes[later] != codes[first]
    for name in feature_columns(features_of(rows)) if len(later) else ():
        differs |= ~equal_rows(rows[name].take(pa.array(later)), rows[name].take(pa.array(first)))
    return differs


def _what_they_say(rows: pa.Table) -> pa.ChunkedArray:
    """Return what each row says, for people: string [rows]."""
    parts = [pc.fill_null(_labels(rows), "nothing")]
    for name in ("split", "group"):
        values = pc.binary_join_element_wise(f", {name} ", rows[name], "")
        parts.append(pc.fill_null(values, ""))
    return pc.binary_join_element_wise(*parts, "")


def _labels(rows: pa.Table) -> pa.ChunkedArray:
    """Return the label of each row, for people: string [rows], null if it has none."""
    names = rows.schema.names
    if PREFIX + MASK_PATH in names:
        return rows[PREFIX + MASK_PATH]
    for name in (PREFIX + LABELS, PREFIX + TARGETS):
        if name in names:
            return pc.binary_join(rows[name].cast(pa.list_(pa.string())), ", ")
    return rows["label"]


def _listed(columns: dict[str, pa.ChunkedArray], features: list[Feature]) -> pa.Table:
    """Add the status that each reason has: LISTING_SCHEMA and columns of features."""
    schema = with_features(LISTING_SCHEMA, features)
    columns = columns | {"status": status_of(columns["reason"])}
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)
