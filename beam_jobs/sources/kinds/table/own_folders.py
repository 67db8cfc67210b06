"""Tables in folders of the source, beside their images: Hugging Face's ImageFolder and its like.

::

    train/metadata.csv  train/0001.png        file_name: 0001.png
    test/metadata.csv   test/0001.png         file_name: 0001.png

Paths of such a table begin in its own folder, if no file of the source has them. Then the folders of the
images give the splits, as in that layout, if each image lies in a folder that names one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.sources.kinds.table.matching import FoundFiles, locate
from shardmill.beam_jobs.sources.kinds.table.recognising import FILE_NAME, is_metadata
from shardmill.beam_jobs.sources.kinds.table.rows import UNDERSTOOD_SCHEMA, paths_within
from shardmill.beam_jobs.sources.kinds.table.tables import Table
from shardmill.beam_jobs.sources.roles import split_of_name
from shardmill.beam_jobs.tables.columns import mask_of, with_column
from shardmill.infra.errors import ConfigError
from shardmill.infra.progress import log

OF_TABLE = "{folder}"  # value of source.table.prefix: the folder of each table


def own_folders(
    raw: pa.Table, tables: list[Table], files: pa.Table, source: str, given: str
) -> pa.Array | None:
    """Return the folder that the paths of each table begin in: string [tables]; None as the settings say.

    Args:
        raw: ROWS_SCHEMA, the rows of all tables.
        tables: the tables.
        files: LISTING_SCHEMA.
        source: URI of the source.
        given: ``source.table.prefix``.

    Raises:
        ConfigError: the paths of a table name files from the source and other files from its folder.
    """
    folders = [(table.uri or "").rpartition("/")[0] for table in tables]
    if given == OF_TABLE:
        return pa.array(folders)
    if given or not any(folders):
        return None
    for number, folder in enumerate(folders):
        if folder:
            paths = raw["path"].filter(pc.equal(raw["table"], number)).drop_null()
            own, of_source = (_files(paths, source, prefix, files) for prefix in (folder, ""))
            if ((own >= 0) & (of_source >= 0) & (own != of_source)).any():
                raise ConfigError(
                    f"paths of the table {tables[number].name} name files of the source and of {folder}",
                    f"say which: --set source.table.prefix=. (the source) or {OF_TABLE!r} (the table's)",
                )
            if (of_source >= 0).any() or not (own >= 0).any():
                folders[number] = ""
    return pa.array(folders) if any(folders) else None


def _files(paths: pa.ChunkedArray, source: str, prefix: str, files: pa.Table) -> np.ndarray:
    """Return the row of the file that each path names: int64, -1 if there is none."""
    return locate(paths_within(paths, source, prefix).combine_chunks(), files)[0]


def with_splits_of_folders(
    rows: pa.Table,
    found: FoundFiles,
    files: pa.Table,
    tables: list[Table],
    folders: pa.Array | None,
    path_column: str | None,
) -> pa.Table:
    """Give rows the split that the folders of their images name, if each image has one.

    Args:
        rows: UNDERSTOOD_SCHEMA, without splits.
        found: the files of the rows.
        files: LISTING_SCHEMA.
        tables: the tables. Those of Hugging Face's ImageFolder, and those with paths from their own folder,
            are beside their images.
        folders: as ``own_folders`` returns them.
        path_column: the column of paths that the settings name.
    """
    are_beside = folders is not None and "" not in folders.to_pylist()
    are_metadata = path_column == FILE_NAME and all(is_metadata(table.path) for table in tables)
    if not are_beside and not are_metadata:
        return rows
    is_found = found.files >= 0
    uris = files["uri"].take(pa.array(found.files, mask=~is_found))
    coded = pc.replace_substring_regex(uris, r"[^/]*$", "").combine_chunks().dictionary_encode()
    named = pa.array(
        [split_of_name(folder.rstrip("/")) for folder in coded.dictionary.to_pylist()], pa.string()
    )
    splits = named.take(coded.indices)
    if not is_found.any() or (mask_of(pc.is_null(splits)) & is_found).any():
        return rows
    log("the folders of the images give the splits")
    return with_column(rows, UNDERSTOOD_SCHEMA.field("split"), splits)
