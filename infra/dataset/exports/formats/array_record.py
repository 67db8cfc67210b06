"""ArrayRecord: the serialised ``tf.train.Example`` of each record, for random access by Grain and others.

The library writes files of this machine only, so a part passes through a temporary file.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shardmill.infra.dataset.exports.formats import Format
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan
from shardmill.infra.dataset.exports.target import PartFiles
from shardmill.infra.extras import lacking

# One record a group: a reader gets each record without inflating others.
_OPTIONS = "group_size:1"


class _ArrayRecord(Format):
    def check(self, plan: Plan) -> None:
        if importlib.util.find_spec("array_record") is None:
            raise lacking("the format array_record", "array_record", "array_record")

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        from array_record.python.array_record_module import ArrayRecordWriter

        number = 0
        with tempfile.TemporaryDirectory(prefix="shardmill-export-") as folder:
            path = Path(folder) / "part.arrayrecord"
            writer = ArrayRecordWriter(str(path), _OPTIONS)
            try:
                for batch in batches:
                    for payload in batch.payloads:
                        writer.write(payload)
                    number += len(batch.payloads)
            finally:
                writer.close()
            with path.open("rb") as written, files.create(f"{part.stem}.arrayrecord") as stream:
                shutil.copyfileobj(written, stream, 1 << 20)
        return number


FORMAT = _ArrayRecord()
