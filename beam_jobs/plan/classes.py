"""Numbers of the classes: those of the previous version are kept, and new ones come after them, sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import Rows
from shardmill.beam_jobs.plan.interface import PreviousRecords
from shardmill.beam_jobs.plan.splits import Labels
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.format.features import features_in
from shardmill.infra.format.known_features import (
    LABELS,
    NO_CLASS,
    OBJECT_FEATURES,
    OBJECT_LABELS,
    LabelKind,
    labels_feature,
)


def number_classes(
    kind: LabelKind,
    listing: pa.Table,
    labels: pa.DictionaryArray,
    rows: Rows,
    previous: PreviousRecords | None,
    of_masks: Sequence[str] = (),
    *,
    drop_empty: bool = False,
) -> tuple[list[str], Labels, pa.Table]:
    """Number the classes of the records.

    Args:
        kind: kind of the labels.
        listing: LISTING_SCHEMA and columns of features.
        labels: name of the class of each file of the listing, if the kind is class.
        rows: int32 [N], rows of the records in the listing.
        previous: the version whose classes keep their numbers.
        of_masks: names by number, if the kind is mask: its labels are numbers.
        drop_empty: whether classes without a record in both versions lose their number.

    Returns:
        Names by number, the number of each record's class (int32 [N]; NO_CLASS if the kind is another), and
        the listing, in which the labels of kind multi are numbers in place of names.
    """
    previous = previous or PreviousRecords(np.empty(0, np.uint64), np.empty(0, np.int8), ())
    number = partial(previous.number_classes, drop_empty=drop_empty)
    if kind == "class":
        return *_class_codes(labels, rows, number), listing
    none = np.full(len(rows), NO_CLASS, np.int32)
    if kind == "mask":
        return list(of_masks), none, listing
    if kind != "multi":
        return [], none, listing
    lists = one_chunk(listing[PREFIX + LABELS])
    found = set(pc.unique(lists.take(pa.array(rows)).flatten()).to_pylist())
    classes = number(found)
    return classes, none, _number_objects(_with_numbers(listing, lists, classes), classes)


def _class_codes(
    labels: pa.DictionaryArray, rows: Rows, number_found: Callable[[set[str]], list[str]]
) -> tuple[list[str], Labels]:
    of_records = labels.indices.take(pa.array(rows)).to_numpy()
    names = labels.dictionary.to_pylist()
    found = {str(names[code]) for code in np.unique(of_records)}
    classes = number_found(found)
    number = {name: at for at, name in enumerate(classes)}
    codes = np.array([number.get(name, -1) for name in names], np.int32)
    return classes, codes[of_records] if len(rows) else np.empty(0, np.int32)


def _with_numbers(listing: pa.Table, lists: pa.ListArray, classes: list[str]) -> pa.Table:
    """Return the listing with the labels as rising numbers. Labels that no record has are left out."""
    name = PREFIX + LABELS
    at = listing.schema.get_field_index(name)
    (named,) = features_in(pa.schema([listing.schema.field(at)]))
    codes = pc.index_in(lists.flatten(), pa.array(classes, pa.string()))
    is_known = np.asarray(pc.is_valid(codes).to_numpy(zero_copy_only=False), np.bool_)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    of_code = np.repeat(np.arange(len(lists)), lengths)[is_known]
    numbers = codes.drop_null().to_numpy().astype(np.int64)
    numbers = numbers[np.lexsort((numbers, of_code))]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(of_code, minlength=len(lists)))])
    mask = pc.is_null(lists) if lists.null_count else None
    numbered = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(numbers), mask=mask)
    field = labels_feature(named.column).arrow_field(PREFIX)
    return listing.set_column(at, field, pa.chunked_array([numbered.cast(field.type)]))


def _number_objects(listing: pa.Table, classes: Sequence[str]) -> pa.Table:
    """Return a listing with the numbers of the objects' classes; one without objects is returned unchanged.

    Args:
        listing: LISTING_SCHEMA and columns of features.
        classes: names by number. Objects of files that become no record may have others.
    """
    at = listing.schema.get_field_index(PREFIX + OBJECT_LABELS)
    if at < 0:
        return listing
    lists = one_chunk(listing.column(at))
    codes = pc.fill_null(pc.index_in(lists.flatten(), pa.array(classes, pa.string())), NO_CLASS)
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
    mask = pc.is_null(lists) if lists.null_count else None
    numbered = pa.ListArray.from_arrays(offsets, codes.cast(pa.int64()), mask=mask)
    (feature,) = (feature for feature in OBJECT_FEATURES if feature.name == OBJECT_LABELS)
    field = feature.arrow_field(PREFIX)
    return listing.set_column(at, field, pa.chunked_array([numbered.cast(field.type)]))
