"""What people decided about contents (``infra.dataset.decisions``), applied once contents are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import OTHER_CLASS, REVIEW
from shardmill.beam_jobs.schemas import PLAN, Status
from shardmill.beam_jobs.tables.columns import code_texts, find_ids, mask_of
from shardmill.beam_jobs.tables.ids import UInt64, digest_bytes, hex_bytes, record_ids
from shardmill.infra.dataset.decisions import Decision
from shardmill.infra.digests import digest_of
from shardmill.infra.format.contract import DUPLICATE, RECORD, LabelEditsSummary

Mask = npt.NDArray[np.bool_]

_KEPT_OF_LOST = ("sha256", "status", "stage", "reason", "message")


@dataclass(frozen=True)
class Decided:
    """The decisions that change a version.

    Attributes:
        ids: ids of the contents: uint64 [N], rising.
        labels: their new classes, None to leave the content out.
        messages: why, as sentences; of contents that are left out alone.
    """

    ids: UInt64
    labels: Sequence[str | None]
    messages: Sequence[str | None]

    @classmethod
    def of(cls, changing: Mapping[str, Decision], config: PrepareConfig) -> Self:
        """Return the decisions that these settings apply.

        Args:
            changing: record id -> relabel or exclude, sorted.
            config: settings of the run. Classes that ``filter.classes`` does not keep are left out, and
                records whose labels are not one class are not relabelled.
        """
        wanted = config.filter.classes
        found: dict[str, tuple[str | None, str | None]] = {}
        for record, row in changing.items():
            who = f"{row.by}, {row.at[:10]}" + (f": {row.reason}" if row.reason else "")
            if row.decision == "exclude":
                found[record] = None, f"a review leaves it out ({who})"
            elif config.source.label_kind == "class":
                is_other = wanted is not None and row.to not in wanted
                found[record] = row.to, "filter.classes does not name its class" if is_other else None
        ids = record_ids(hex_bytes(pa.array(list(found), pa.string()), 8))
        labels, messages = zip(*found.values(), strict=True) if found else ((), ())
        return cls(ids, labels, messages)

    @property
    def digest(self) -> str | None:
        """SHA-256 of what is decided; None: nothing is."""
        is_lost = [message is not None for message in self.messages]
        decided = list(zip(self.ids.tolist(), self.labels, is_lost, strict=True))
        return digest_of(decided, length=64) if decided else None

    def warnings(self, listing: pa.Table) -> list[str]:
        """Warn of classes that no usable input of a listing has: they may be mistyped."""
        from shardmill.beam_jobs.sources.label_edits import new_classes  # loads what reads tables

        given = {label for label in self.labels if label is not None}
        if not given:
            return []
        usable = listing["label"].filter(pc.equal(listing["status"], Status.TO_READ)).cast(pa.string())
        classes = {name for name in pc.unique(usable).to_pylist() if name is not None}
        return new_classes("the review", given, classes) if classes else []

    def apply(self, listing: pa.Table, facts: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Give files their new classes, and leave out those whose content is excluded.

        Args:
            listing: LISTING_SCHEMA and columns of features.
            facts: PLACED_FACTS_SCHEMA and columns of features, of the files that are read, in order.
        """
        at, found = find_ids(self.ids, record_ids(digest_bytes(facts["sha256"])))
        # The content of a filtered file stays out for that reason; one in quarantine may be excluded.
        found &= mask_of(pc.is_valid(facts["sha256"])) & (facts["status"].to_numpy() != Status.FILTERED)
        if not found.any():
            return listing, facts
        read = np.flatnonzero(listing["status"].to_numpy() == Status.TO_READ)[found]
        places = np.zeros(listing.num_rows, np.int64)
        places[read] = at[found]
        is_decided = np.zeros(listing.num_rows, np.bool_)
        is_decided[read] = True
        label = pa.array(self.labels, pa.string()).take(pa.array(places, mask=~is_decided))
        before = listing["label"].cast(pa.string())
        labels = pc.coalesce(label, before)
        is_coded = pa.types.is_dictionary(listing.schema.field("label").type)
        listing = listing.set_column(listing.schema.get_field_index("label"), "label", labels)
        listing = code_texts(listing, ("label",)) if is_coded else listing
        messages = pa.array(self.messages, pa.string()).take(pa.array(at, mask=~found))
        is_excluded = mask_of(pc.is_null(pa.array(self.labels, pa.string()).take(pa.array(at))))
        is_whole = facts["status"].to_numpy() != Status.QUARANTINED
        is_lost = mask_of(pc.is_valid(messages)) & (is_excluded | is_whole)
        messages = messages.filter(pa.array(is_lost))
        reasons = np.where(is_excluded, REVIEW, OTHER_CLASS)[is_lost].tolist()
        lost = zip(reasons, messages.to_pylist(), strict=True)
        return listing, without(facts, is_lost, Status.FILTERED, lost)

    def summary(
        self, batches: Iterable[pa.RecordBatch], edits: LabelEditsSummary | None
    ) -> LabelEditsSummary | None:
        """Return what these decisions changed in a version, together with its label edits.

        Args:
            batches: the rows of all inputs: INPUTS_SCHEMA.
            edits: what ``source.label_edits`` changed; None without them.
        """
        if self.digest is None:
            return edits
        relabelled = self.ids[[label is not None for label in self.labels]]
        num_labels, num_left_out = (edits.num_labels, edits.num_left_out) if edits else (0, 0)
        for batch in batches:
            is_used = mask_of(pc.is_in(batch["outcome"], pa.array([RECORD, DUPLICATE])))
            used = pc.utf8_slice_codeunits(batch["sha256"].filter(pa.array(is_used)), 0, 16)
            num_labels += int(find_ids(relabelled, record_ids(hex_bytes(used, 8)))[1].sum())
            num_left_out += int(mask_of(pc.equal(batch["reason"], REVIEW)).sum())
        digest = digest_of([edits and edits.sha256, self.digest], length=64)
        return LabelEditsSummary(sha256=digest, num_labels=num_labels, num_left_out=num_left_out)


def without(facts: pa.Table, lost: Mask, status: Status, said: Iterable[tuple[str, str]]) -> pa.Table:
    """Return facts in which some files have no stored image any more.

    Args:
        facts: PLACED_FACTS_SCHEMA and columns of features.
        lost: bool [N], which files.
        status: their new status.
        said: reason and message of each of them.
    """
    if not lost.any():
        return facts
    chosen = pa.array(lost)
    reasons, messages = zip(*said, strict=True)
    values = {
        "status": pa.array(np.full(len(messages), status, np.int8)),
        "stage": pa.array([PLAN] * len(messages)),
        "reason": pa.array(reasons),
        "message": pa.array(messages),
    }
    columns = {}
    for field in facts.schema:
        column = facts[field.name].combine_chunks()
        if field.name in values:
            columns[field.name] = pc.replace_with_mask(column, chosen, values[field.name].cast(field.type))
        elif field.name in _KEPT_OF_LOST:
            columns[field.name] = column
        else:
            columns[field.name] = pc.if_else(chosen, pa.scalar(None, field.type), column)
    return pa.table(columns).cast(facts.schema)
