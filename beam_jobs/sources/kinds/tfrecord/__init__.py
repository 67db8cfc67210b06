"""TFRecord files of others: records of ``tf.train.Example`` with an encoded image and a label.

Each record is an input, ``train-00000.tfrecord#row=0000017``; records are counted from 0. Files may be
compressed by gzip or zlib as a whole. A file that is cut short or damaged keeps the records in front of the
damage; one row stands for the rest. TensorFlow is not needed.

    framing    records in a file, and the damages of it
    reading    single records
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.classes.names import quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.tfrecord.framing import Frames, compression_of, unpacked
from shardmill.beam_jobs.sources.kinds.tfrecord.reading import Records
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.rows.examples import collect_rows
from shardmill.beam_jobs.sources.rows.feature_map import FeatureMap, find_features
from shardmill.beam_jobs.sources.rows.listing import Contents, list_contents, read_all, walk_files
from shardmill.beam_jobs.sources.rows.reading import RowReader
from shardmill.beam_jobs.sources.rows.row_files import (
    FileRows,
    RowFile,
    RowFileBroken,
    choose_files,
    files_of,
)
from shardmill.beam_jobs.sources.rows.unpacked import keep_unpacked
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

_ENDINGS = (".tfrecord", ".tfrecords", ".tfrec", ".tfr", ".record", ".records")


def is_tfrecord(uri: str) -> bool:
    """Tell by a lower-case URI whether a file is a TFRecord file: ``train.tfrecord-00000-of-00010`` too."""
    name = uri.rpartition("/")[2].removesuffix(".gz").removesuffix(".zlib")
    return name.endswith(_ENDINGS) or any(f"{ending}-" in name for ending in _ENDINGS)


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every record of the TFRecord files of a folder, with its label and split.

    Every file is read once for that, since labels stand beside the images.

    Raises:
        NotFoundError: there is no such folder, or no record in it.
        ConfigError: a feature is not there, or which one is meant cannot be told.
    """
    settings, kind = config.source.rows, config.source.label_kind
    files, warnings = walk_files(folder, config)
    chosen = choose_files(folder, files, is_tfrecord, "TFRecord file")
    found: list[FeatureMap] = []

    def find(file: RowFile, compression: str, payload: bytes) -> FeatureMap:
        features = find_features(file.uri, payload, settings, kind)
        log(f"{file.uri} was read as TFRecord ({compression}): {features.in_words()}")
        return features

    def read(file: RowFile) -> FileRows:
        compression = compression_of(file, settings.compression)
        with unpacked(file, compression) as stream:
            records = Frames(stream)
            each = ((frame.offset, frame.payload, frame.fault) for frame in records)
            rows = collect_rows(each, found, partial(find, file, compression))
        if rows is None:
            raise RowFileBroken(records.damage or "it holds no record")
        return rows.rows(file, records.damage)

    rows, broken = read_all(folder, chosen, read)
    return list_contents(folder, config, Contents(files, rows, broken, {}, warnings))


def make_readable(
    folder: SourceFolder, config: PrepareConfig, references: pa.Table, scratch: Storage
) -> None:
    """Unpack the compressed files that are to be read."""
    for file in files_of(folder, references):
        compression = compression_of(file, config.source.rows.compression)
        if compression != "none":
            keep_unpacked(file, compression, partial(unpacked, file, compression), scratch)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise TFRecord files by their names."""
    files = [uri for uri in glance.files if is_tfrecord(uri.lower())]
    return Recognised(f"it has TFRecord files: {quoted(files)}") if files else None


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> RowReader:
    """Open the reader of records."""
    opens = partial(Records, settings=config.source.rows, scratch=scratch)
    return RowReader(folder, opens, by_number=False)
