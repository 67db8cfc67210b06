"""The time line of a demo, from the events of its jobs."""

from __future__ import annotations

import io
import re
import time
from typing import Any

from rich.console import Console

from shardmill.flows.cli.demo.time_line import BETWEEN_JOBS, TimeLine

# (seconds after the demo began its jobs, event)
EVENTS: list[tuple[float, dict[str, Any]]] = [
    (2, {"event": "job", "job": "prepare", "shares": {}}),
    (3, {"event": "stage", "stage": "list"}),
    (4, {"event": "stage", "stage": "encode"}),
    (5, {"event": "stage", "stage": "reread"}),
    (6, {"event": "progress", "stage": "encode"}),
    (7, {"event": "result", "result": {}}),
    (9, {"event": "job", "job": "train", "shares": {}}),
    (14, {"event": "stage", "stage": "train"}),
    (15, {"event": "stage", "stage": "validate"}),
    (16, {"event": "stage", "stage": "train"}),
    (20, {"event": "stage", "stage": "evaluate validation"}),
    (21, {"event": "stage", "stage": "evaluate test"}),
    (24, {"event": "result", "result": {}}),
]
PARTS = {
    "prepare: start": (0, 3),
    "prepare: list the files": (3, 4),
    "prepare: check and encode images": (4, 7),
    "train: start": (7, 14),
    "train: learn": (14, 20),
    "train: evaluate the best model": (20, 24),
    "stop Prefect": (25, 26),
}


def test_it_has_each_part_from_its_first_event_to_the_next_part() -> None:
    begun = time.time()
    times = TimeLine()
    server = times.beside("start Prefect")
    times.begin(BETWEEN_JOBS, begun)
    for seconds, event in EVENTS:
        times({"time": begun + seconds, **event})
    server.end = begun + 8
    times.begin("stop Prefect", begun + 25)
    times.end(begun + 26)
    found = {part.name: (round(part.begin - begun), round(part.end - begun)) for part in times.parts}
    assert found["start this command"][1] == 0
    assert found[BETWEEN_JOBS] == (24, 25)
    assert found["start Prefect"] == (0, 8)
    assert {name: found[name] for name in PARTS} == PARTS

    sink = io.StringIO()
    times.print(Console(file=sink, width=80, highlight=False))
    lines = {re.split("  +", line.strip())[0]: line for line in sink.getvalue().splitlines()}
    for name, (begin, end) in PARTS.items():
        shown = re.search(r"([\d.]+) +([\d.]+) ( *)(█+|▏)", lines[name])
        assert shown is not None
        assert float(shown[2]) == end - begin
        scale = 24 / times.seconds
        assert abs(len(shown[4]) - max(1, (end - begin) * scale)) <= 1
