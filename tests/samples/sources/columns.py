"""Settings of one group and of ``source.columns``, written together in tests, each in its own group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmill.beam_jobs.config import ColumnsConfig, TableConfig


def with_columns(group: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of ``source`` that settings belong to: to ``columns``, or else to the named group.

    Of the group "objects", settings of ``table`` are those of boxes, of columns, or of the files of tables.
    """
    of_boxes = dict(settings.get("table", {})) if group == "objects" else {}
    together = {**settings, **of_boxes}
    columns = {name: together.pop(name) for name in list(together) if name in ColumnsConfig.model_fields}
    if group != "objects":
        return {group: together, "columns": columns}
    files = {name: of_boxes[name] for name in of_boxes if name in TableConfig.model_fields}
    boxes = {name: of_boxes[name] for name in of_boxes if name not in files and name not in columns}
    own = {name: value for name, value in together.items() if name not in {*of_boxes, "table"}}
    own |= {"table": boxes} if boxes else {}
    return {"objects": own, "columns": columns} | ({"table": files} if files else {})
