"""Images that are rows of arrays: NumPy's ``.npy`` and ``.npz``, IDX as of MNIST, and MATLAB as of SVHN.

Each row of an array of images is an input: ``images.npy#row=0000017``, or ``mnist.npz#x_train=0000017`` in a
file of several arrays; rows are counted from 0. The bytes that stand for an image, whose SHA-256 is its
identity, are a PNG file of its pixels without compression (shardmill.beam_jobs.sources.kinds.arrays.reading).

    found      the arrays in a file, by its header
    matlab     those of a file of MATLAB
    roles      which arrays hold images, and which their labels
    reading    labels, and images row by row
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.arrays.found import ENDINGS, MATLAB, FoundArray, find_arrays
from shardmill.beam_jobs.sources.kinds.arrays.reading import ArrayImages, keep_unpacked_arrays, list_rows
from shardmill.beam_jobs.sources.kinds.arrays.roles import LabelledImages, pair_arrays
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.beam_jobs.sources.rows.listing import Contents, list_contents, row_of, walk_files
from shardmill.beam_jobs.sources.rows.reading import RowReader
from shardmill.beam_jobs.sources.rows.row_files import (
    FileRows,
    RowFile,
    RowFileBroken,
    choose_files,
    files_of,
)
from shardmill.infra.errors import ConfigError
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

_SVHN = re.compile(r"(^|/)(train|test|extra)_32x32\.mat$")
# What follows the name of a data set in the names of IDX files.
_IDX_ROLE = re.compile(r"(train|test|t10k)[-_.]", re.IGNORECASE)


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every row of the arrays of images in a folder, with its label and split.

    Raises:
        NotFoundError: there is no such folder, or no array in it.
        ConfigError: images have no labels, or an array has the wrong type or shape.
    """
    kind = config.source.label_kind
    files, warnings = walk_files(folder, config)
    endings = ENDINGS if any(file.uri.endswith(ENDINGS) for file in files) else (MATLAB,)
    chosen = choose_files(folder, files, lambda uri: uri.endswith(endings), "NumPy, IDX or MATLAB file")
    arrays, broken = [], {}
    for found in chosen:
        try:
            arrays += find_arrays(RowFile(folder, found.uri, found.ref.mtime_ns))
        except (RowFileBroken, SourceFault) as error:
            broken[found.uri] = str(error)
            log(f"{found.uri} cannot be read: {error}", level="warning")
    rows: list[FileRows] = []
    others = {array.file.uri: "it holds no images" for array in arrays}
    for pair in _paired(arrays, broken, config.source):
        log(_in_words(pair))
        others.pop(pair.images.file.uri, None)
        others |= {
            array.file.uri: f"it belongs to the images in {pair.images.file.uri}"
            for array in (pair.labels, pair.splits, pair.groups, *pair.columns.values())
            if array is not None and array.file.uri in others
        }
        try:
            rows.append(list_rows(pair, kind))
        except (RowFileBroken, SourceFault) as error:
            broken[pair.images.file.uri] = str(error)
            log(f"the images {pair.images.in_words} are lost: {error}", level="warning")
    return list_contents(folder, config, Contents(files, rows, broken, others, warnings))


def _paired(
    arrays: list[FoundArray], broken: Mapping[str, str], settings: SourceConfig
) -> list[LabelledImages]:
    """Bring images and their labels together.

    Raises:
        ConfigError: images have no labels; it names a damaged file, which may hold them.
    """
    try:
        return (
            pair_arrays(
                arrays,
                settings.columns,
                settings.label_kind,
                splits_from_names=settings.rows.splits_from_names,
            )
            if arrays
            else []
        )
    except ConfigError as error:
        for uri, why in broken.items():
            raise ConfigError(f"{error.message}; {uri} cannot be read: {why}", error.remedy) from error
        raise


def make_readable(
    folder: SourceFolder, config: PrepareConfig, references: pa.Table, scratch: Storage
) -> None:
    """Unpack the compressed arrays that are to be read."""
    for file in files_of(folder, references):
        is_in = pc.equal(references["container"].cast(pa.string()), file.uri)
        uris = references.filter(is_in)["uri"].to_pylist()
        units = {row[1] for uri in uris if (row := row_of(uri))}
        keep_unpacked_arrays(file, units, scratch)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise NumPy and IDX files."""
    files = [*glance.ending_in(*ENDINGS), *_of_svhn(glance)]
    why = f"it has files of arrays: {quoted(files)}"
    sets = {}
    for uri in [uri for uri in files if "-ubyte" in uri.lower()]:
        sets[_IDX_ROLE.split(uri)[0]] = True
    if len(sets) > 1:  # as those of EMNIST in one folder
        ways = [cli_for("arrays", {"files": f"{begin}*"}) for begin in sets]
        return Recognised(f"{why}; they are of several data sets", readings=ways)
    zero = {"columns": {"merge_labels": {"10": "0"}}} if files and files == _of_svhn(glance) else {}
    return Recognised(why, zero) if files else None


def _of_svhn(glance: Glance) -> list[str]:
    """Return the files of SVHN (http://ufldl.stanford.edu/housenumbers), whose class 10 is the digit 0."""
    return [uri for uri in glance.ending_in(MATLAB) if _SVHN.search(uri)]


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> RowReader:
    """Open the reader of rows."""
    return RowReader(folder, partial(ArrayImages, scratch=scratch))


def _in_words(pair: LabelledImages) -> str:
    split = f", for the split {pair.split}" if pair.split else ""
    labels = f"; labels: {pair.labels.in_words}" if pair.labels is not None else ""
    return f"images: {pair.images.in_words}{labels}{split}"
