"""Imports of small datasets, as the command makes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources.recognition.importing import import_request
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.examples import ImageRecord, parse_example
from shardmill.infra.format.records import iter_records
from shardmill.infra.settings import load_settings


def import_of(place: Path | str, root: Path, **settings: Any) -> JobRequest:
    """The request of an import; ``settings`` are those of prepare, nested."""

    def load(base: Mapping[str, Any]) -> PrepareConfig:
        quick = {"runner": {"processes": 2, "block_images": 8}}
        return load_settings(PrepareConfig, section="prepare", base=base, given={**quick, **settings})

    return import_request(str(place), "d", str(root), load)


def imported(place: Path | str, root: Path, **settings: Any) -> dict[str, Any]:
    """The result of an import."""
    return prepare_version(import_of(place, root, **settings))


def records_by_split(version: DatasetVersion) -> dict[str, list[ImageRecord]]:
    """Split -> its records, in stored order."""
    found: dict[str, list[ImageRecord]] = {}
    for shard in version.manifest.shards:
        payloads = iter_records(version.storage, shard.path, version.manifest.container)
        found.setdefault(shard.split, []).extend(parse_example(payload) for _, _, payload in payloads)
    return found


def stored_images(version: DatasetVersion) -> set[tuple[str, str, bytes]]:
    """Split, class and stored image of each record."""
    return {
        (split, record.label_name, record.image)
        for split, records in records_by_split(version).items()
        for record in records
    }
