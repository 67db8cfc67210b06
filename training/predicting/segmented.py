"""Write the masks that were predicted for image files: a PNG beside the table for each, maybe an overlay."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.codecs import Pixels, encode_jpeg
from shardmill.infra.codecs.masks import Numbers, encode_mask, lay_over
from shardmill.infra.format.known_features import mask_format
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import uri_of
from shardmill.training.predicting.inputs import Input
from shardmill.training.predicting.outputs import Prediction
from shardmill.training.tasks.kind import Decisions

OVERLAY_SIDE: Final = 1024  # pixels of the longer side, at most
_OVERLAY_QUALITY = 90
_NAME_BYTES = 200  # longest name of a file without its ending


def mask_decisions(*, overlays: bool) -> Decisions:
    """Return the columns of files of masks; the values are the shares of the classes.

    ``Prediction.further`` has what the columns hold.

    Args:
        overlays: there is an overlay of each file too.
    """
    columns = {"height": pa.int32(), "width": pa.int32(), "mask": pa.string()}
    if overlays:
        columns["overlay"] = pa.string()
    return Decisions("mask", columns, lambda _names, _values: {}, "shares")


@dataclass
class MaskNames:
    """File names of masks, made from the names of their images.

    Attributes:
        folders: the folders that were given.
    """

    folders: Sequence[Path]
    _used: set[str] = field(default_factory=set)

    def name_of(self, path: Path) -> str:
        """Return a name without ending, relative to the folder of the masks, that no earlier file has."""
        below = next(
            (path.relative_to(folder) for folder in self.folders if path.is_relative_to(folder)), None
        )
        below = Path(path.name) if below is None else below
        stem = os.fsdecode(os.fsencode(below.stem if below.stem.strip(".") else below.name)[:_NAME_BYTES])
        name = found = (below.parent / stem).as_posix()
        count = 1
        while found in self._used:
            count += 1
            found = f"{name}-{count}"
        self._used.add(found)
        return found


@dataclass(frozen=True)
class MaskFiles:
    """The files of the masks of a table of predictions.

    Attributes:
        table: the path of the table; masks are in the folder ``<its name without ending>-masks`` beside it.
        names: names of the files.
        num_classes: the number of classes.
        overlays: write an overlay for each file too.
    """

    table: Path
    names: MaskNames
    num_classes: int
    overlays: bool

    def predictions(
        self,
        files: Iterable[tuple[Path, Input]],
        masks: npt.NDArray[Any] | None,
        together: Callable[..., Iterator[Prediction]],
    ) -> Iterator[Prediction]:
        """Write the masks of files, and yield the row of each.

        Args:
            files: path and content.
            masks: [n, S, S], of the files that were decoded, in their order; None: there are none.
            together: calls a function for each element of several lists, as ``map`` does.
        """
        of_decoded = iter(() if masks is None else masks)
        inputs, own_masks, names = [], [], []
        for path, one in files:
            is_decoded = one.seen is not None
            inputs.append(one)
            own_masks.append(next(of_decoded) if is_decoded else None)
            names.append(self.names.name_of(path) if is_decoded else "")
        return together(self._write, inputs, own_masks, names)

    def _write(self, one: Input, mask: npt.NDArray[Any] | None, name: str) -> Prediction:
        """Write the mask of a file, and maybe an overlay, and return its row; without a mask, the reason."""
        if mask is None or one.seen is None:
            return Prediction(one.path, (), one.reason, one.message)
        stored, view = mask_format(self.num_classes), one.seen.view
        numbers = view.mask(mask.astype(stored.dtype), stored.ignore)
        written = {"mask": (f"{self.table.stem}-masks/{name}.png", encode_mask(numbers))}
        if self.overlays and one.shown is not None:
            written["overlay"] = (
                f"{self.table.stem}-overlays/{name}.jpg",
                _overlay(one.shown, numbers, self.num_classes),
            )
        folder = Storage.at(self.table.absolute().parent)
        for path, content in written.values():
            folder.write_atomic(path, content)
        shares = np.bincount(numbers.ravel(), minlength=self.num_classes)[: self.num_classes] / numbers.size
        names = {column: uri_of(path) for column, (path, _) in written.items()}
        further = {"height": view.upright[0], "width": view.upright[1], **names}
        return Prediction(one.path, shares.tolist(), further=further)


def _overlay(shown: Pixels, numbers: Numbers, num_classes: int) -> bytes:
    """Return a JPEG of an image with its mask laid over it."""
    return encode_jpeg(lay_over(shown, numbers, num_classes), _OVERLAY_QUALITY)
