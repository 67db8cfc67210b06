"""Requests to prepare a source, as the command makes them, and a file of a source."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest


def asked(source: Path | str, **settings: Any) -> JobRequest:
    """Return a request with ``source.kind = "auto"`` and the given settings of the source."""
    config = PrepareConfig.model_validate({"source": {"kind": "auto", **settings}})
    return JobRequest(source=str(source), dataset="d", root="/nowhere/root", config=config)


def parquet(columns: dict[str, list[Any]]) -> bytes:
    """The bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()
