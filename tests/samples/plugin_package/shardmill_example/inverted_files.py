"""Image files with every byte inverted; the class is the beginning of the name: ``cat-001.inv``."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, FileRef, Status
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns
from shardmill.beam_jobs.sources.listing import Listing, rows_of_files
from shardmill.infra.settings import Settings
from shardmill.infra.storage.filesystem import Storage


class Options(Settings):
    """The options of the kind."""

    separator: str = "-"


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """Return a row for each file."""
    separator = Options.model_validate(config.source.options).separator
    walk = folder.walk(IgnorePatterns(()), splits_on_top=False)
    rows = rows_of_files(list(walk), LISTING_SCHEMA).to_pylist()
    for row in rows:
        row["label"] = row["uri"].partition(separator)[0]
        if not row["uri"].endswith(".inv"):
            row |= {"status": Status.FILTERED, "reason": "other_file", "message": "no .inv file"}
    return Listing(pa.Table.from_pylist(rows, LISTING_SCHEMA).sort_by("uri"), walk.warnings())


@dataclass(frozen=True)
class InvertedReader:
    """Turns the bytes of a file over."""

    folder: SourceFolder

    def read(self, file: FileRef) -> bytes:
        """Return the image."""
        return bytes(255 - byte for byte in self.folder.read(file))


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> InvertedReader:
    """Return the reader of the workers."""
    return InvertedReader(folder)
