"""List the files that are predicted, and decode them as ``prepare`` does, or say why not."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shardmill.infra import progress as events
from shardmill.infra.codecs import ImageRejected, Pixels, decode_in_bands
from shardmill.infra.codecs.arrays import in_grey
from shardmill.infra.codecs.formats import HEAD_BYTES, Wanted, sniff
from shardmill.infra.codecs.pages import InMemory, count_pages, page_name
from shardmill.infra.codecs.pages.further import has_further_pictures
from shardmill.infra.codecs.samples import DeepWanted
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import ShardmillError
from shardmill.infra.preparation import Pages, Preparation
from shardmill.infra.storage.locations import default_root, uri_of
from shardmill.training.config.data import ImageOptions
from shardmill.training.export.model_input import FILE, ModelInput, Seen, preparation_of, read_model_input
from shardmill.training.reading.decode import resize_into
from shardmill.training.results.run_files.run_folder import RunFolder

UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Input:
    """One file, decoded or refused; or a folder that cannot be listed.

    Attributes:
        path: as given, or the folder as given with the path below it.
        seen: the image as the model sees it; None: refused.
        shown: the upright image in the size for people, uint8 [h, w, 3]; None: it was not asked for.
        reason, message: why it was refused: a code, and a sentence for people.
        has_further: the file holds further pictures, which are left out.
    """

    path: str
    seen: Seen | None = None
    shown: Pixels | None = None
    reason: str | None = None
    message: str | None = None
    has_further: bool = False


def input_of_run(run: RunFolder, root: str | Path | None = None) -> ModelInput:
    """Return what the model of a finished run sees of image files.

    A run of an earlier release does not say how its records were made. Then its dataset version tells, or if
    that is gone, they count as made by the default settings, and a warning says so.

    Args:
        run: the run.
        root: the folder of the datasets; None: the default.

    Raises:
        DataError: the run is unfinished. CorruptDataError: its file is damaged.
    """
    result, data = run.finished(), run.config()["data"]
    if (run.path / FILE).is_file():
        return read_model_input(run.path)
    how, place = None, default_root() if root is None else root
    with contextlib.suppress(ShardmillError):
        how = preparation_of(Catalog(place).open_view(run.dataset).manifest)
    if how is None:
        events.log(
            f"the run {run.name} does not say how its images were prepared, and {run.dataset} in {place} "
            "cannot be asked: the default settings are taken (--root names the folder of the datasets)",
            level="warning",
        )
    return ModelInput(
        preparation=how or Preparation(),
        image_size=result["image_size"],
        **{name: data[name] for name in ImageOptions.__annotations__ if data.get(name)},
    )


def list_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield files as given, and for a folder all files below it, sorted by path; hidden ones are left out.

    A folder that cannot be listed is yielded itself: ``read_input`` refuses it. A link to a folder above it
    is not followed, since that folder's files are yielded anyway.
    """
    for path in paths:
        yield from _files_at(path)


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False if the system does not allow to look."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _files_at(place: Path) -> Iterator[Path]:
    """Yield the file, or the files below the folder."""
    # Paths that are still to be looked at, the next one last, each with the identities of the folders above.
    waiting: list[tuple[Path, frozenset[tuple[int, int]]]] = [(place, frozenset())]
    while waiting:
        path, above = waiting.pop()
        try:
            found = path.stat()
            within = sorted(path.iterdir(), reverse=True) if stat.S_ISDIR(found.st_mode) else None
        except OSError:
            yield path
            continue
        identity = (found.st_dev, found.st_ino)
        if within is None:
            yield path
        elif identity not in above:
            inside = above | {identity}
            waiting += [(each, inside) for each in within if not each.name.startswith(".")]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a TIFF or a frame of a DICOM file, which is an image of its own.

    Attributes:
        file: the file.
        number: its number, from 0; None: the pages cannot be counted.
    """

    file: InMemory
    number: int | None


def list_pictures(paths: Sequence[Path], pages: Pages) -> Iterator[tuple[Path, Page | None]]:
    """Yield the files of ``list_files``; with ``pages`` = "images" once for each page of one with several."""
    for path in list_files(paths):
        if pages != "images":
            yield path, None
        else:
            yield from ((path, page) for page in _pages_of(path))


def _pages_of(path: Path) -> Sequence[Page | None]:
    try:
        with path.open("rb") as stream:
            if sniff(stream.read(HEAD_BYTES)) not in ("tiff", "dicom"):
                return [None]
        file = InMemory(path.read_bytes())
        count = count_pages(file)[1]
    except (OSError, ModuleNotFoundError):
        return [None]  # reading the file tells it
    except ImageRejected:
        return [Page(file, None)]
    return [Page(file, number) for number in range(count)] if count > 1 else [None]


def read_input(path: Path, given: ModelInput, shown_side: int = 0, page: Page | None = None) -> Input:
    """Read and decode one file.

    Args:
        path: the file.
        given: what the model sees of it.
        shown_side: the longer side of the image for people, at most (pixels); 0: none is wanted.
        page: the page of it that is the image; None: the file is.
    """
    name = uri_of(str(path))
    try:
        if page is None:
            data = path.read_bytes()
        elif page.number is None:
            data = page.file.page(0)  # raises what is wrong
        else:
            name, data = page_name(name, page.number), page.file.page(page.number)
    except ImageRejected as error:
        return Input(name, reason=error.reason, message=error.message)
    except IsADirectoryError:
        return Input(name, reason=UNREADABLE, message="the folder cannot be listed")
    except OSError as error:
        return Input(name, reason=UNREADABLE, message=error.strerror or str(error))
    try:
        how = given.preparation
        seen, shown = given.see(data), _shown(data, how, shown_side)
        return Input(name, seen, shown, has_further=has_further_pictures(data, how.pages))
    except ImageRejected as error:
        return Input(name, reason=error.reason, message=error.message)


def _shown(data: bytes, how: Preparation, side: int) -> Pixels | None:
    """Return the upright image, its longer side with at most so many pixels; None for 0."""
    if not side:
        return None
    try:
        pixels = decode_in_bands(data, Wanted.of(how)).whole().pixels
    except ImageRejected:  # of some kinds there is no picture, but channels
        if not how.reads_samples:
            raise
        from shardmill.infra.codecs.deep import decode_deep  # readers do without tifffile

        pixels = np.dstack([in_grey(decode_deep(data, DeepWanted.of(how)).pixels)] * 3)
    height, width = pixels.shape[:2]
    if max(height, width) <= side:
        return pixels
    ratio = side / max(height, width)
    out = np.empty((max(1, round(height * ratio)), max(1, round(width * ratio)), 3), np.uint8)
    resize_into(np.ascontiguousarray(pixels), out)
    return out
