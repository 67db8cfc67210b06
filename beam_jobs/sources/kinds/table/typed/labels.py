"""Labels of other kinds than one class: several labels, or numbers, of the rows of all tables.

They become a column of features, ``feature:labels`` (names) or ``feature:targets``, and a text for people in
the column ``label``, which also tells whether two rows say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig, FeatureColumn
from shardmill.beam_jobs.tables.columns import lengths_of, lists_of, mask_of, one_chunk, with_column
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import LABELS, TARGETS, LabelKind, targets_feature

MASK_PATH = "mask/path"  # path of the mask, until the masks are attached
BETWEEN = ", "  # labels and numbers, for people
_TRUE, _FALSE = pa.array(["1", "true", "yes", "1.0"]), pa.array(["0", "false", "no", "0.0"])


def label_columns(settings: ColumnsConfig, kind: LabelKind, label_column: str) -> dict[str, FeatureColumn]:
    """Return the typed columns that hold the labels: name -> how its values are read.

    Args:
        settings: settings of the source.
        kind: kind of the labels.
        label_column: the column with a list of labels, if no columns of 0 and 1 are named; of kind mask the
            column with the path of the mask.
    """
    if kind == "targets":
        wanted = {
            f"{TARGETS}:{name}": FeatureColumn(column=name, dtype="float") for name in settings.target_columns
        }
        return dict(wanted)
    if kind == "mask":
        return {MASK_PATH: FeatureColumn(column=label_column, dtype="text")}
    if kind != "multi":
        return {}
    if settings.label_columns:
        return {
            f"{LABELS}:{name}": FeatureColumn(column=name, dtype="text") for name in settings.label_columns
        }
    return {LABELS: FeatureColumn(column=label_column, dtype="text", separator=settings.label_separator)}


def with_labels(rows: pa.Table, settings: ColumnsConfig, kind: LabelKind, label_column: str) -> pa.Table:
    """Put the column of the label kind in place of the columns that it is made of, and fill in ``label``.

    Args:
        rows: with the columns that ``label_columns`` names, and ``label`` and ``fault``.
        settings: settings of the source.
        kind: kind of the labels.
        label_column: the column with a list of labels, if no columns of 0 and 1 are named.
    """
    if kind == "targets":
        return _with_targets(rows, settings.target_columns)
    if kind != "multi":
        return rows
    if settings.label_columns:
        rows, lists = _from_flags(rows, settings.label_columns)
    else:
        lists = as_lists(rows[PREFIX + LABELS])
        rows = rows.drop_columns([PREFIX + LABELS])
    return with_label_lists(rows, lists, ", ".join(settings.label_columns) or label_column)


def with_label_lists(rows: pa.Table, lists: pa.ListArray, column: str | None) -> pa.Table:
    """Set the labels of rows (list of string), each once and sorted, and their text."""
    lists = _sorted_sets(lists)
    text = pc.binary_join(lists, BETWEEN)
    feature = Feature(name=LABELS, dtype="bytes", shape="variable", is_text=True, column=column)
    rows = with_column(rows, pa.field("label", pa.string()), text)
    return with_column(rows, feature.arrow_field(PREFIX), lists)


def renamed_labels(lists: pa.ListArray, names: Mapping[str, str]) -> pa.ListArray:
    """Return label lists with the names that ``source.columns.merge_labels`` gives."""
    values = lists.flatten()
    at = pc.index_in(values, pa.array(list(names), pa.string()))
    values = pc.coalesce(pa.array(list(names.values()), pa.string()).take(at), values)
    return lists_of(values, lengths_of(lists), pc.is_null(lists))


def having_one_of(lists: pa.ListArray, names: Sequence[str]) -> pa.Array:
    """Return which lists hold one of some labels: bool [rows]."""
    chosen = np.asarray(
        pc.is_in(lists.flatten(), pa.array(names, pa.string())).to_numpy(zero_copy_only=False)
    )
    rows = np.repeat(np.arange(len(lists)), lengths_of(lists))
    found = np.zeros(len(lists), np.bool_)
    found[rows[chosen]] = True
    return pa.array(found)


def as_lists(column: pa.ChunkedArray) -> pa.ListArray:
    """Return a column of label names as lists of them, without empty ones; null where a row has none.

    A single text is a list of one label.
    """
    array = one_chunk(column)
    if pa.types.is_list(array.type):
        lengths, values, null = lengths_of(array), array.flatten(), pc.is_null(array)
    else:
        lengths = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.int64)
        values, null = array.drop_null(), pc.is_null(array)
    values = pc.utf8_trim_whitespace(values)
    kept = np.asarray(pc.not_equal(values, "").to_numpy(zero_copy_only=False), np.bool_)
    rows = np.repeat(np.arange(len(array)), lengths)[kept]
    return lists_of(values.filter(pa.array(kept)), np.bincount(rows, minlength=len(array)), null)


def _from_flags(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, pa.ListArray]:
    """Read a column of 0 and 1 for each label; a row with an empty one has no labels."""
    count = rows.num_rows
    flags, unknown = np.zeros((count, len(names)), np.bool_), np.zeros(count, np.bool_)
    for at, name in enumerate(names):
        key = f"{PREFIX}{LABELS}:{name}"
        text = pc.utf8_lower(pc.utf8_trim_whitespace(rows[key]))
        text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
        flags[:, at] = mask_of(pc.is_in(text, _TRUE))
        strange = ~flags[:, at] & ~mask_of(pc.is_in(text, _FALSE)) & mask_of(pc.is_valid(text))
        unknown |= mask_of(pc.is_null(text)) | strange
        if strange.any():
            words = pc.binary_join_element_wise(f"its {name} is ", rows[key], ", not 0 or 1", "")
            words = pc.if_else(pa.array(strange), words, pa.scalar(None, pa.string()))
            rows = with_column(rows, rows.schema.field("fault"), pc.coalesce(rows["fault"], words))
        rows = rows.drop_columns([key])
    row, label = np.nonzero(flags & ~unknown[:, np.newaxis])
    values = pa.array(names, pa.string()).take(pa.array(label))
    return rows, lists_of(values, np.bincount(row, minlength=count), pa.array(unknown))


def _with_targets(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Join the targets to a list each; a row that lacks one has none."""
    values = np.full((rows.num_rows, len(names)), np.nan, np.float32)
    for at, name in enumerate(names):
        key = f"{PREFIX}{TARGETS}:{name}"
        values[:, at] = pc.fill_null(rows[key], np.nan).to_numpy()
        rows = rows.drop_columns([key])
    return with_target_lists(rows, values, ", ".join(names))


def with_target_lists(rows: pa.Table, values: npt.NDArray[np.float32], column: str) -> pa.Table:
    """Set the targets of rows (float32 [rows, T]), and their text; a row with a NaN among them has none."""
    count = values.shape[1]
    null = pa.array(~np.isfinite(values).all(axis=1))
    flat = pa.array(np.where(np.isfinite(values), values, 0).reshape(-1))
    lists = lists_of(flat, np.full(rows.num_rows, count), null)
    texts = flat.cast(pa.string())
    text = pc.binary_join(lists_of(texts, np.full(rows.num_rows, count), null), BETWEEN)
    rows = with_column(rows, pa.field("label", pa.string()), text)
    feature = targets_feature(count, column)
    return with_column(rows, feature.arrow_field(PREFIX), lists)


def _sorted_sets(lists: pa.ListArray) -> pa.ListArray:
    """Return lists of texts sorted and without repetition."""
    coded = lists.flatten().dictionary_encode()
    names = coded.dictionary.take(pc.sort_indices(coded.dictionary))
    ranks = np.asarray(pc.index_in(lists.flatten(), names).to_numpy(zero_copy_only=False), np.int64)
    rows = np.repeat(np.arange(len(lists)), lengths_of(lists))
    keys = np.unique(rows * max(1, len(names)) + ranks)
    rows, ranks = np.divmod(keys, max(1, len(names)))
    values = names.take(pa.array(ranks))
    return lists_of(values, np.bincount(rows, minlength=len(lists)), pc.is_null(lists))
