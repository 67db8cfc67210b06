"""A page that records the artifacts instead of showing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from shardmill.flows.flow_runs.showing.page import RunPage


class RecordedPage(RunPage):
    """Records artifacts in place of a Prefect run: key -> (type, data, description)."""

    def __init__(self, sub_runs: Sequence[UUID] = ()) -> None:
        super().__init__([])
        self.shown: dict[str, tuple[str, Any, str]] = {}
        self.progressed: list[tuple[float, str]] = []
        self._inside = list(sub_runs)

    def markdown(self, key: str, text: str, description: str) -> None:
        self.shown[key] = "markdown", text, description

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        self.shown[key] = "table", list(rows), description

    def progress(self, key: str, percent: float, description: str) -> None:
        self.shown[key] = "progress", percent, description
        self.progressed.append((percent, description))

    def sub_runs(self) -> list[UUID]:
        return self._inside
