"""Read each row of a table by itself: the URI of a file, a label, a split, or why it cannot be used."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig
from shardmill.beam_jobs.reasons import BAD_PATH, BROKEN_ROW, NO_LABEL
from shardmill.beam_jobs.sources.class_names import ClassNumbers, name_labels
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.table.rules import (
    Rule,
    first_rules,
    labels_of_no_row,
    said_of,
    understand_labels,
)
from shardmill.beam_jobs.tables.columns import mask_of, one_chunk, values_of, with_column
from shardmill.beam_jobs.tables.features import PREFIX, feature_columns, features_of
from shardmill.infra.format.known_features import LABELS, LabelKind

Int64 = npt.NDArray[np.int64]

# The rows of all tables as understood.
UNDERSTOOD_SCHEMA = pa.schema(
    [
        ("row_uri", pa.string()),  # of the row itself
        ("who", pa.string()),  # the row, for people: "row 17 of labels.csv"
        ("path", pa.string()),  # of the file, relative to the source; null if the row names none
        ("label", pa.string()),  # name of the class
        ("split", pa.string()),
        ("group", pa.string()),
        ("reason", pa.string()),  # why the row is no good; null if it is
        ("message", pa.string()),  # the reason in a sentence
    ]
)

_OUTSIDE = r"^/|^[A-Za-z][A-Za-z0-9+.-]*://|(^|/)\.\.(/|$)"
_NO_TEXT = pa.scalar(None, pa.string())


def understand(
    raw: pa.Table,
    columns: ColumnsConfig,
    paths: pa.ChunkedArray | None,
    prefixes: list[str],
    kind: LabelKind = "class",
    class_names: Collection[str] = (),
) -> pa.Table:
    """Read paths, labels and splits as the settings say, and find the rows that cannot be used.

    Args:
        raw: ROWS_SCHEMA and columns of features.
        columns: which labels are dropped and merged.
        paths: string [rows], relative to the source (``paths_within``); None if they are addresses, which are
            taken as they are.
        prefixes: what the URIs of the rows of each table begin with.
        kind: kind of the labels.
        class_names: all labels that there may be, after ``name_rows``; empty for any.

    Returns:
        UNDERSTOOD_SCHEMA and columns of features, in the same order.
    """
    numbers = raw["number"].cast(pa.string())
    tables = pa.array(prefixes).take(one_chunk(raw["table"]))
    names = pa.array([prefix.removesuffix("row=").rstrip("#") for prefix in prefixes])
    names = names.take(one_chunk(raw["table"]))
    nowhere = _rules_of_paths(raw, paths)
    unclosed = pc.match_substring_regex(raw["label"], r"[\r\n]")
    unnamed = None
    if class_names:
        is_no_name = pc.invert(pc.is_in(raw["label"], pa.array(sorted(class_names), pa.string())))
        is_no_name = pc.and_(is_no_name, pc.is_valid(raw["label"]))
        unnamed = Rule(is_no_name, NO_LABEL, ("its label ", raw["label"], " is the number of no named class"))
    understood = understand_labels(raw, raw["split"], SPLIT_OF_FOLDER, columns, kind, unnamed)
    why = "its label reaches over several lines: is a quote not closed?"
    rules = [*nowhere, Rule(unclosed, BROKEN_ROW, (why,)), *understood.rules]
    reasons, messages = first_rules(rules, raw.num_rows)
    who = pc.binary_join_element_wise("row ", numbers, " of ", names, "")
    lost = np.logical_or.reduce([mask_of(rule.mask) for rule in nowhere])
    rows = pa.table(
        {
            "row_uri": pc.binary_join_element_wise(tables, numbers, ""),
            "who": who,
            "path": pc.if_else(pa.array(lost), _NO_TEXT, raw["path"] if paths is None else paths),
            "label": understood.table["label"],
            "split": understood.splits,
            "group": raw["group"],
            "reason": reasons,
            "message": pc.binary_join_element_wise(who, messages, ": "),
        },
        UNDERSTOOD_SCHEMA,
    ).combine_chunks()
    for name in feature_columns(features_of(raw)):
        rows = rows.append_column(raw.schema.field(name), understood.table[name])
    return rows


def _rules_of_paths(raw: pa.Table, paths: pa.ChunkedArray | None) -> list[Rule]:
    """Return why rows name no file that could be there."""
    rules = [
        Rule(pc.is_valid(raw["fault"]), BROKEN_ROW, (raw["fault"],)),
        Rule(pc.is_null(raw["path"]), BAD_PATH, ("it names no file",)),
    ]
    if paths is not None:
        outside = pc.or_(pc.match_substring_regex(paths, _OUTSIDE), pc.match_substring(paths, "\0"))
        words = ("it names ", raw["path"], ", which is outside of the source")
        rules.append(Rule(outside, BAD_PATH, words))
    return rules


def name_rows(raw: pa.Table, names: ClassNumbers) -> pa.Table:
    """Put the names of classes in place of labels that are numbers; numbers without a name stay.

    Args:
        raw: ROWS_SCHEMA and columns of features.
        names: number -> name; if empty, all labels stay as they are.
    """
    texts = raw["label"].combine_chunks()
    labels, _ = name_labels(texts, names)
    return with_column(raw, raw.schema.field("label"), pc.coalesce(labels, texts))


def reject(rows: pa.Table, chosen: pa.ChunkedArray, reason: str, *words: str | pa.ChunkedArray) -> pa.Table:
    """Give a reason and a message to the chosen rows that have none yet.

    Args:
        rows: UNDERSTOOD_SCHEMA.
        chosen: bool [rows]; null counts as false.
        reason: of shardmill.beam_jobs.reasons.
        words: of the message behind the name of the row; a column has a value for each row.
    """
    at = np.flatnonzero(mask_of(chosen) & mask_of(pc.is_null(rows["reason"])))
    taken = pa.array(at)
    return reject_some(rows, at, reason, *(w if isinstance(w, str) else w.take(taken) for w in words))


def reject_some(rows: pa.Table, at: Int64, reason: str, *words: str | pa.Array | pa.ChunkedArray) -> pa.Table:
    """Give a reason and a message to some rows.

    Args:
        rows: UNDERSTOOD_SCHEMA.
        at: int64 [N], numbers of the rows.
        reason: of shardmill.beam_jobs.reasons.
        words: of the message behind the name of the row; a column has a value for each of these rows.
    """
    if not len(at):
        return rows
    who = rows["who"].take(pa.array(at))
    said = said_of(np.arange(len(at)), (who, ": ", *words))
    places = np.full(rows.num_rows, -1, np.int64)
    places[at] = np.arange(len(at))
    is_here = places >= 0
    messages = pc.coalesce(said.take(pa.array(places, mask=~is_here)), rows["message"])
    rows = with_column(rows, UNDERSTOOD_SCHEMA.field("message"), messages)
    reasons = pc.if_else(pa.array(is_here), pa.scalar(reason), rows["reason"])
    return with_column(rows, UNDERSTOOD_SCHEMA.field("reason"), reasons)


def settings_warnings(raw: pa.Table, columns: ColumnsConfig) -> list[str]:
    """Warn of labels that ``drop_labels`` or ``merge_labels`` names, and that no row has."""
    has_lists = PREFIX + LABELS in raw.schema.names
    labels = values_of(raw[PREFIX + LABELS]) if has_lists else raw["label"]
    found = [text for text in pc.unique(labels).to_pylist() if text is not None]
    return labels_of_no_row(columns, found)


def paths_within(paths: pa.ChunkedArray, source: str, prefix: str | pa.Array) -> pa.ChunkedArray:
    """Return paths relative to the source, with the prefix (or that of each) before the relative ones."""
    root = f"{source.rstrip('/')}/"
    within = pc.starts_with(paths, root)
    cut = pc.utf8_slice_codeunits(paths, len(root))
    absolute = pc.match_substring_regex(paths, "^/|^[A-Za-z][A-Za-z0-9+.-]*://")
    if isinstance(prefix, str):
        before = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    else:
        before = pa.chunked_array([pc.binary_join_element_wise(prefix, "", "/")])
    relative = pc.if_else(absolute, paths, pc.binary_join_element_wise(before, paths, ""))
    plain = pc.if_else(within, cut, relative)
    # "a//b", "a/./b" and "./a/b" are all the file a/b; an address keeps its slashes.
    tidy = pc.replace_substring_regex(plain, r"/(\./)*(/(\./)*)*", "/")
    tidy = pc.replace_substring_regex(tidy, r"^(\./)+", "")
    return pc.if_else(pc.match_substring(plain, "://"), plain, tidy)
