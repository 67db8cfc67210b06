"""Divide records evenly over splits and shards, by the kind of their labels.

=========  ======================================  ===============================================
kind       splits                                  shards
=========  ======================================  ===============================================
class      each class by the fractions             records of each class in turn
multi      iterative stratification by label       records of each set of labels in turn
targets    iterative stratification by the tenths  records of each combination of tenths in turn
mask       as multi, by the classes that it shows  as multi
none       all records by the fractions            records in turn
=========  ======================================  ===============================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import Codes, Rows
from shardmill.beam_jobs.plan.splits.assignment import assign_splits
from shardmill.beam_jobs.plan.splits.label_sets import Strata, assign_by_strata, quantile_bins
from shardmill.beam_jobs.plan.splits.placement import Labels, Units
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.beam_jobs.tables.ids import UInt64
from shardmill.infra.format.known_features import LABELS, TARGETS, LabelKind


@dataclass(frozen=True)
class LabelsToSplit:
    """The labels of records, of any kind.

    Attributes:
        classes: int32 [N], number of the class, if the kind is class.
        table: has the columns of labels or targets.
        rows: int32 [N], row of each record in the table.
        num_classes: number of the classes.
    """

    classes: Labels
    table: pa.Table
    rows: Rows
    num_classes: int


def assign_by_kind(
    kind: LabelKind,
    labels: LabelsToSplit,
    given: Codes,
    ranks: UInt64,
    fractions: Sequence[float],
    previous: Codes | None = None,
    units: Units | None = None,
) -> Codes:
    """Assign each record to a split: int8 [N], index into SPLITS. See ``assignment.assign_splits``."""
    if kind == "class":
        return assign_splits(given, labels.classes, ranks, fractions, previous, units)
    if kind == "none":
        return assign_splits(given, np.zeros_like(labels.classes), ranks, fractions, previous, units)
    if kind in ("multi", "mask"):
        lists = one_chunk(labels.table[PREFIX + LABELS].take(pa.array(labels.rows)))
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        strata = Strata.of_labels(lengths, lists.flatten().to_numpy(), labels.num_classes)
    else:
        strata = Strata.of_targets(targets_of(labels.table, labels.rows))
    return assign_by_strata(given, strata, ranks, fractions, previous, units)


def dealing_strata(kind: LabelKind, table: pa.Table, rows: Rows, classes: Labels) -> npt.NDArray[np.int32]:
    """Return the stratum of each record by which records are dealt to shards: int32 [N].

    Args:
        kind: kind of the labels.
        table: has the columns of labels or targets.
        rows: int32 [N], row of each record in the table.
        classes: int32 [N], number of the class, if the kind is class.
    """
    if kind in ("multi", "mask"):
        lists = one_chunk(table[PREFIX + LABELS].take(pa.array(rows)))
        # As text a list can be coded; the codes are in the order of the texts, whatever that of the rows.
        texts = pc.binary_join(lists.cast(pa.list_(pa.string())), " ")
        ordered = pc.unique(texts).sort()
        return np.asarray(pc.fill_null(pc.index_in(texts, ordered), -1).to_numpy(), np.int32)
    if kind == "targets":
        bins = quantile_bins(targets_of(table, rows))
        _, strata = np.unique(bins, axis=0, return_inverse=True)
        return strata.reshape(-1).astype(np.int32)
    return classes


def targets_of(table: pa.Table, rows: Rows) -> npt.NDArray[np.float32]:
    """Return the targets of records: float32 [N, T]."""
    lists = one_chunk(table[PREFIX + TARGETS].take(pa.array(rows)))
    values: npt.NDArray[np.float32] = lists.flatten().to_numpy()
    return values.reshape(len(rows), -1) if len(rows) else np.zeros((0, 1), np.float32)
