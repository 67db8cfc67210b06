"""The ids of the records, one a line, with the class of each."""

from __future__ import annotations

from collections.abc import Iterator

from shardmill.infra.dataset.exports.formats import Format
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan, label_names
from shardmill.infra.dataset.exports.target import PartFiles


class IdList(Format):
    """Writes a text file for each part."""

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        """Write the lines of a part."""
        number = 0
        with files.create(f"{part.stem}.txt") as stream:
            for batch in batches:
                for record, label in zip(batch.records, label_names(plan, batch).to_pylist(), strict=True):
                    stream.write(f"{record.id} {label}\n".encode())
                    number += 1
        return number


FORMAT = IdList()
