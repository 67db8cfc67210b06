"""Labels and splits of the rows of tables and row files, and the rules by which a row cannot be used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig
from shardmill.beam_jobs.reasons import DROPPED_LABEL, NO_LABEL, UNKNOWN_SPLIT
from shardmill.beam_jobs.sources.kinds.table.typed.labels import (
    having_one_of,
    renamed_labels,
    with_label_lists,
)
from shardmill.beam_jobs.tables.columns import mask_of, one_chunk, values_of, with_column
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.format.contract import SPLITS
from shardmill.infra.format.features import features_in
from shardmill.infra.format.known_features import LABELS, LabelKind
from shardmill.infra.near_names import near_names

MISSING_LABEL = {"class": "label", "multi": "label", "targets": "number for each target"}
_NO_TEXT = pa.scalar(None, pa.string())


@dataclass(frozen=True)
class Rule:
    """A reason why some rows cannot be used.

    Attributes:
        mask: bool [rows], which rows; null counts as false.
        reason: of shardmill.beam_jobs.reasons.
        words: parts of the message; a column has a text for each row.
    """

    mask: pa.Array | pa.ChunkedArray
    reason: str
    words: tuple[str | pa.Array | pa.ChunkedArray, ...]


@dataclass(frozen=True)
class Understood:
    """What rows say of labels and splits.

    Attributes:
        table: the rows with the labels of ``merge_labels``.
        splits: string [rows]; null where a row gives none, or one that is not known.
        rules: why rows cannot be used, the most important first.
    """

    table: pa.Table
    splits: pa.Array | pa.ChunkedArray
    rules: list[Rule]


def understand_labels(
    table: pa.Table,
    splits: pa.Array | pa.ChunkedArray,
    split_names: Mapping[str, str],
    settings: ColumnsConfig,
    kind: LabelKind,
    unnamed: Rule | None = None,
) -> Understood:
    """Understand the labels and splits of rows.

    Args:
        table: has the column ``label``, and for kind multi that of the lists of labels.
        splits: string [rows], as the source writes them.
        split_names: in lower case -> split.
        settings: which labels are dropped and merged.
        kind: kind of the labels.
        unnamed: about labels that are numbers of no class; None if there are none.
    """
    label = table["label"]
    known = renamed(pc.utf8_lower(splits), split_names)
    is_strange = pc.and_(pc.is_valid(known), pc.invert(pc.is_in(known, pa.array(SPLITS))))
    rules = [] if unnamed is None else [unnamed]
    if kind in MISSING_LABEL:
        rules.append(Rule(pc.is_null(label), NO_LABEL, (f"it has no {MISSING_LABEL[kind]}",)))
    is_dropped = dropped(table, settings.drop_labels, kind)
    rules += [
        Rule(is_dropped, DROPPED_LABEL, ("source.columns.drop_labels names its label ", label)),
        Rule(is_strange, UNKNOWN_SPLIT, ("its split is ", splits)),
    ]
    known = pc.if_else(pc.fill_null(is_strange, False), _NO_TEXT, known)
    return Understood(merged(table, settings.merge_labels, kind), known, rules)


def first_rules(rules: Sequence[Rule], count: int) -> tuple[pa.Array, pa.Array]:
    """Return reason and message of the first rule that holds for each row: string [rows], null if none does.

    Args:
        rules: about the rows, the most important first.
        count: number of rows.
    """
    holding = np.full(count, -1, np.int64)
    for number, rule in reversed(list(enumerate(rules))):
        holding[mask_of(rule.mask)] = number
    messages, places = [pa.array([], pa.string())], np.full(count, -1, np.int64)
    start = 0
    for number, rule in enumerate(rules):
        at = np.flatnonzero(holding == number)
        messages.append(said_of(at, rule.words))
        places[at] = np.arange(start, start + len(at))
        start += len(at)
    none = holding < 0
    reasons = pa.array([rule.reason for rule in rules], pa.string()).take(pa.array(holding, mask=none))
    return reasons, pa.concat_arrays(messages).take(pa.array(places, mask=none))


def said_of(rows: np.ndarray, words: Sequence[str | pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Join words to a text for each of some rows; a column among them has a text for every row."""
    taken = pa.array(rows)
    parts = [pa.repeat("", len(rows))]
    parts += [
        pa.repeat(word, len(rows)) if isinstance(word, str) else pc.fill_null(word.take(taken), "")
        for word in words
    ]
    return one_chunk(pc.binary_join_element_wise(*parts, ""))


def classes_of(rows: pa.Table, kind: LabelKind) -> list[str]:
    """Return the classes of the rows that can be used, sorted; none if the labels are no classes.

    Args:
        rows: have the columns ``label`` and ``reason``, and for kind multi that of the lists of labels.
        kind: kind of the labels.
    """
    if kind not in ("class", "multi"):
        return []
    good = rows.filter(pc.is_null(rows["reason"]))
    has_lists = PREFIX + LABELS in good.schema.names
    labels = values_of(good[PREFIX + LABELS]) if has_lists else good["label"]
    return sorted(name for name in pc.unique(labels).to_pylist() if name is not None)


def dropped(table: pa.Table, names: Sequence[str], kind: LabelKind) -> pa.Array | pa.ChunkedArray:
    """Return which rows have a label that ``drop_labels`` names: bool [rows].

    Args:
        table: has the column ``label`` and for kind multi that of the lists of labels.
        names: the labels.
        kind: kind of the labels.
    """
    if kind == "multi":
        return having_one_of(one_chunk(table[PREFIX + LABELS]), names)
    is_named = pc.is_in(table["label"], pa.array(names, pa.string()))
    return pc.and_(is_named, pc.is_valid(table["label"]))


def merged(table: pa.Table, names: dict[str, str], kind: LabelKind) -> pa.Table:
    """Give labels the names of ``merge_labels``; ``table`` as for ``dropped``."""
    if not names:
        return table
    if kind == "multi":
        name = PREFIX + LABELS
        lists = renamed_labels(one_chunk(table[name]), names)
        return with_label_lists(table, lists, features_in(pa.schema([table.schema.field(name)]))[0].column)
    return with_column(table, table.schema.field("label"), renamed(table["label"], names))


def renamed(texts: pa.Array | pa.ChunkedArray, names: Mapping[str, str]) -> pa.Array | pa.ChunkedArray:
    """Return texts with those that ``names`` knows in place of the others; the rest is unchanged."""
    if not names:
        return texts
    at = pc.index_in(texts, pa.array(list(names), pa.string()))
    return pc.coalesce(pa.array(list(names.values()), pa.string()).take(at), texts)


def labels_of_no_row(settings: ColumnsConfig, found: Collection[str]) -> list[str]:
    """Warn of labels that ``drop_labels`` or ``merge_labels`` names, and that were not found."""
    warnings = []
    for key, names in (("drop_labels", settings.drop_labels), ("merge_labels", tuple(settings.merge_labels))):
        for name in names:
            if name not in found:
                near = near_names(name, found)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                warnings.append(f"source.columns.{key} names {name!r}, which is the label of no row{meant}")
    return warnings
