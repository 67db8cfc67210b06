"""The boxes or masks of the records of a split, as a task needs them."""

from __future__ import annotations

from collections.abc import Mapping

from shardmill.training.reading import RecordReader
from shardmill.training.reading.records.objects import SplitObjects, load_objects
from shardmill.training.tasks.task import Task


def objects_of(task: Task, reader: RecordReader) -> SplitObjects | None:
    """Return the objects of a split, if they are the labels of a task.

    Args:
        task: the task.
        reader: the records of the split.
    """
    labels = task.labels
    if not isinstance(labels, Mapping) or all(spec.follows != "boxes" for spec in labels.values()):
        return None
    return load_objects(reader.split.version, reader.table.split)
