"""Images whose classes and splits lists of text give, or folders below others, as development kits have them.

A list has a line for each image: ``banded/banded_0002.jpg``, ``Abyssinian_100 1``, ``000001.jpg -1 1 1``. One
list may give the class of an image and another its split; images that no list labels have the class of their
folder, if ``folders`` names the folder above. Others are left out.

    options      which lists there are, and what their columns say
    reading      the lines of lists, and the names of classes
    found_lists  the lists of a source, by what their lines name
    recognising  which of them, and of the folders, label its images
    places       the folders above the folders of classes
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns
from shardmill.beam_jobs.sources.kind_modules import options_of
from shardmill.beam_jobs.sources.kinds.lists.options import OF_LIST, Options
from shardmill.beam_jobs.sources.kinds.lists.places import class_of_name
from shardmill.beam_jobs.sources.kinds.lists.reading import Said, first_code, read_list, read_names
from shardmill.beam_jobs.sources.kinds.lists.recognising import recognise_lists
from shardmill.beam_jobs.sources.kinds.table import list_named, listed_files
from shardmill.beam_jobs.sources.kinds.table.columns import ROWS_SCHEMA
from shardmill.beam_jobs.sources.kinds.table.matching import locate
from shardmill.beam_jobs.sources.kinds.table.rows import paths_within
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_files_named
from shardmill.beam_jobs.sources.kinds.table.typed.labels import with_label_lists
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.recognition.naming import ANYWHERE
from shardmill.beam_jobs.sources.roles import is_place
from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.filesystem import Storage

__all__ = ["Options", "list_inputs", "recognise"]

Int64 = npt.NDArray[np.int64]
_NUMBER_OF_IMAGE = re.compile(r"[_\-. ]?\d+$")


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with what lists and folders say of it.

    Raises:
        NotFoundError: there is no such folder or list, or no line names a file.
        ConfigError: a list cannot be read as the options say.
    """
    options = options_of(config, Options)
    said = [one for how in options.lists for one in read_list(folder, how, config.source)]
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    uris = {one.table.uri for one in said} | {how.ids for how in options.lists} | {options.names}
    files = listed_files(walk, [uri for uri in uris if uri is not None])
    paths = [_paths(one, folder, files) for one in said]
    at = [locate(one.combine_chunks(), files)[0] for one in paths]
    labelled = [number for number, one in enumerate(said) if one.how.label is not None]
    splits = _splits_of(said, at)
    tables = [one.table for one in said]
    rows: dict[str, list[object]] = {name: [] for name in ROWS_SCHEMA.names}
    for number in labelled:
        one = said[number]
        for row, path in enumerate(paths[number].to_pylist()):
            given = one.splits[row]
            for split in [given] if given else splits.get(int(at[number][row]), [None]):
                _add(rows, number, one.numbers[row], path, one.labels[row], split, one.groups[row])
    seen = np.unique(np.concatenate([at[number] for number in labelled] or [np.zeros(0, np.int64)]))
    places = [(place, split or None, _of_folder) for place, split in options.folders.items()]
    places += [(place, None, _of_name) for place in options.stems]
    for place, split, class_of in places:
        _add_folder(rows, len(tables), place, split, files, seen, splits, class_of)
        tables.append(Table(Storage.at(folder.location), place, place, None))
    has_several = config.source.label_kind == "multi"
    lists = [label if isinstance(label, list) else [label] for label in rows["label"]] if has_several else []
    labels = [None] * len(lists) if has_several else _named(rows, folder, options)
    raw = pa.table(rows | {"label": pa.array(labels, pa.string())}, ROWS_SCHEMA)
    if has_several:
        raw = with_label_lists(raw, pa.array(lists, pa.list_(pa.string())), None)
    return list_named(raw, raw["path"], tables, files, config, walk.warnings())


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise lists of images, and folders of classes below folders that are none."""
    return recognise_lists(glance, settings)


def _add(rows: dict[str, list[object]], *values: object) -> None:
    for name, value in zip(ROWS_SCHEMA.names, (*values, None), strict=True):
        rows[name].append(value)


def _add_folder(
    rows: dict[str, list[object]],
    number: int,
    place: str,
    split: str | None,
    files: pa.Table,
    seen: Int64,
    splits: dict[int, list[str | None]],
    class_of: Callable[[str], str | None],
) -> None:
    """Add the images below a folder whose paths there give their class, if no list labels them."""
    prefix = f"{place}/" if place else ""
    known, uris = set(seen.tolist()), files["uri"].to_pylist()
    is_read = files["status"].to_numpy() == Status.TO_READ
    for at in np.flatnonzero(is_read).tolist():
        uri = uris[at]
        if at in known or not uri.startswith(prefix) or (label := class_of(uri[len(prefix) :])) is None:
            continue
        for one in [split] if split else splits.get(at, [None]):
            _add(rows, number, at + 1, uri, label, one, None)


def _of_folder(path: str) -> str | None:
    return path.split("/", 1)[0] if "/" in path else None


def _of_name(path: str) -> str | None:
    return class_of_name(path) if "/" not in path else None


def _splits_of(said: Sequence[Said], at: Sequence[Int64]) -> dict[int, list[str | None]]:
    """Return row of a file -> its splits in the lists that give only those; two of them contradict."""
    found: dict[int, list[str | None]] = {}
    for one, files in zip(said, at, strict=True):
        if one.how.label is None:
            for file, split in zip(files.tolist(), one.splits, strict=True):
                if file >= 0 and split is not None and split not in found.setdefault(file, []):
                    found[file].append(split)
    return found


def _paths(said: Said, folder: SourceFolder, files: pa.Table) -> pa.ChunkedArray:
    """Return the path of the image of each line, relative to the source.

    Raises:
        ConfigError: the lines are to follow the images of a folder, and are not as many.
    """
    place = said.how.images
    if place == OF_LIST:
        place = (said.table.uri or "").rpartition("/")[0]
    if said.how.image == 0:
        prefix = f"{place}/" if place else ""
        uris = files.filter(pa.array(files["status"].to_numpy() == Status.TO_READ))["uri"].to_pylist()
        inside = [uri for uri in uris if uri.startswith(prefix) and "/" not in uri[len(prefix) :]]
        if len(inside) != len(said.paths):
            raise ConfigError(
                f"{said.table.name} has {len(said.paths):,} lines, and {place or 'the source'} has "
                f"{len(inside):,} images",
                "there must be a line for each image, in the order of their names",
            )
        return pa.chunked_array([pa.array(inside, pa.string())])
    root = f"{folder.uri.rstrip('/')}/"
    given = (path if path is None or path.startswith(root) else path.lstrip("/") for path in said.paths)
    paths = pa.chunked_array([pa.array(given, pa.string())])
    if place != ANYWHERE:
        return paths_within(paths, folder.uri, place)
    by_name: dict[str, str | None] = {}
    for uri in files["uri"].to_pylist():
        name = uri.rpartition("/")[2]
        for key in {name, name.rpartition(".")[0]}:
            by_name[key] = uri if key not in by_name else None
    found = [by_name.get(path.rpartition("/")[2]) or path if path else None for path in said.paths]
    return pa.chunked_array([pa.array(found, pa.string())])


def _named(rows: dict[str, list[object]], folder: SourceFolder, options: Options) -> list[str | None]:
    """Return the class of each row by its name, as a file of names says, or its images."""
    labels = [None if label is None else first_code(str(label)) for label in rows["label"]]
    longest: dict[int, str] = {}  # 00016 of a folder is 16 in a list
    for label in labels:
        if label is not None and label.isdecimal():
            longest[int(label)] = max(longest.get(int(label), ""), label, key=len)
    labels = [longest[int(label)] if label is not None and label.isdecimal() else label for label in labels]
    used = {label for label in labels if label is not None}
    if options.names is not None:
        (table,) = find_files_named(folder, options.names, "source.options.names")
        names, codes = read_names(table.folder.read_bytes(table.path), table.name, used)
        return [None if label is None else names[codes.get(label, label)] for label in labels]
    return _named_by_images(labels, rows)


def _named_by_images(labels: list[str | None], rows: dict[str, list[object]]) -> list[str | None]:
    """Return classes with names in place of numbers, if the folders or names of images have them.

    Each number must have one name, and each name one number.
    """
    numbered = [at for at, label in enumerate(labels) if label is not None and label.isdecimal()]
    uris = [str(rows["path"][at] or "") for at in numbered]
    for parts, least in (
        ([uri.split("/")[-2] if "/" in uri else "" for uri in uris], 1),
        ([_NUMBER_OF_IMAGE.sub("", re.sub(r"\.[^./]*$", "", uri.rpartition("/")[2])) for uri in uris], 2),
    ):
        of_rows = zip(numbered, parts, strict=True)
        pairs = Counter((labels[at], part) for at, part in of_rows if part and not is_place(part))
        known = dict(pairs.keys())
        are_words = all(not part.isdecimal() for part in known.values())
        is_one_to_one = len(known) == len(pairs) == len(set(known.values())) > 1
        if is_one_to_one and are_words and min(pairs.values()) >= least:
            return [known.get(label, label) for label in labels]
    return labels
