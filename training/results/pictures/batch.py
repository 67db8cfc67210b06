"""``shardmill.show_batch(batch, dataset)``: the examples of a batch as pictures with their labels."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.codecs.arrays import for_people
from shardmill.infra.codecs.masks import lay_over
from shardmill.infra.dataset.outlines import Outlines
from shardmill.infra.dataset.thumbnails import picture_uri
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import NO_CLASS, key_points
from shardmill.infra.html import notebook
from shardmill.infra.readable import counted, first_of, readable_figure
from shardmill.infra.storage.local import writes
from shardmill.training.dataset import Dataset
from shardmill.training.reading.decode import Pixels, resize_into
from shardmill.training.results.pictures.batch_parts import (
    Array,
    Parts,
    ValueRange,
    array_of,
    images_of,
    parts_of,
)
from shardmill.training.results.pictures.grid import Cell, check_suffix, grid_picture

_SHOWN = 12
_SIDE, _COLUMNS = 168, 6  # pixels of a picture, pictures a row
_HTML_SIDE, _PNG_SIDE = 112, 84  # pixels of a picture in a notebook, which shall be small
_NAMES = 3  # classes or numbers named below a picture
_PAGE = ".html"
_COLORS = 64  # of a PNG in a notebook


@checked
def show_batch(
    batch: Any,
    dataset: Dataset | None = None,
    *,
    classes: Sequence[str] | None = None,
    count: int = _SHOWN,
    value_range: Sequence[float] | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> BatchPictures:
    """Return the first examples of a batch as pictures, which a notebook shows and ``save`` writes.

    Images are [b, H, W, C] or [b, C, H, W], grey or RGB, arrays or tensors. Whole numbers are taken as 0 to
    255 and others as 0 to 1, unless ``value_range``, or ``mean`` and ``std``, say otherwise. Those of 16 bits
    or of a dataset of other depths or channels are stretched. Objects are drawn, masks are laid over their
    images, and whole images are shown without their padding.

    Args:
        batch: a ``Batch``, a batch of ``.tf`` or ``.torch``, (images, labels) or (images, labels, weights), a
            dict with "image" or "images" and "label" or "labels", or images alone.
        dataset: the dataset of the batch; its classes are named, and its kind of labels is known.
        classes: the names of the classes, in place of a dataset.
        count: the number of examples to show.
        value_range: the values of black and of white, such as (-1, 1) or (0, 255).
        mean: what was subtracted from pixels of 0 to 1: one number, or one a channel.
        std: what they were divided by then, likewise.

    Raises:
        UsageError: it is no batch of images, or nothing tells which values are black and white.
    """
    at_least(0, count=count)
    if dataset is not None and classes is not None:
        raise UsageError("dataset and classes both name the classes", "give one of them")
    asked = ValueRange.asked(value_range, mean, std)
    parts = parts_of(batch)
    samples = None if dataset is None else dataset.version.manifest.samples
    channels = None if samples is None or samples.is_common else samples.channels
    images = images_of(parts, count, channels)
    if asked is not None and channels not in (None, 1, 3):
        raise UsageError(
            f"images have {channels} channels, and value_range, mean and std are for grey or RGB",
            "leave them out: each channel is then stretched to what it has",
        )
    stretches = channels is not None or any(image.dtype == np.uint16 for image in images)
    known = asked or (None if stretches else ValueRange.told(images))
    labels = Labels(parts, len(images), dataset, classes)
    cells = []
    for row, image in enumerate(images):
        finite = np.isfinite(image)
        lines = [labels.words(row)]
        if not finite.all():
            lines.append(f"{counted(int((~finite).sum()), 'value')} not finite, shown black")
            image = image if known is None else np.where(finite, image, known.black)
        pixels = for_people(image) if known is None else known.pixels(image)
        cells.append(Cell(labels.drawn(row, pixels), (*lines, *labels.notes(row))))
    about = counted(len(parts.images), "example")
    if len(cells) < len(parts.images):
        about = f"{len(cells):,} of {about}"
    return BatchPictures(": ".join(filter(None, (parts.title, about))), tuple(cells))


@dataclass(frozen=True, slots=True, repr=False)
class BatchPictures:
    """The pictures of a batch.

    Attributes:
        title: the batch, and how many of its examples are shown.
        cells: the picture of each, uint8 [h, w, 3], and the lines below it.
    """

    title: str
    cells: tuple[Cell, ...]

    def __repr__(self) -> str:
        return f"<{self.title}, as pictures>"

    @checked
    def save(self, path: str | Path) -> Path:
        """Write the pictures to a file whose suffix is .html, .png, .jpg, .jpeg or .webp; return its path.

        Raises:
            UsageError: it has another suffix. StorageError: the file cannot be written.
        """
        out = Path(path)
        check_suffix(out, (_PAGE,))
        with writes(out):
            if out.suffix.lower() == _PAGE:
                out.write_text(notebook.page(self.title, self._repr_html_()), encoding="utf-8")
            else:
                self._picture(_SIDE).save(out)
        return out

    def _repr_html_(self) -> str:
        figures = [
            notebook.Figure(picture_uri(pixels), pixels.shape[:2], cell.caption)
            for cell in self.cells
            for pixels in [_fitted(cell.pixels, _HTML_SIDE)]
        ]
        return notebook.block(self.title, (), [notebook.contact_sheet(figures, _HTML_SIDE)])

    def _repr_png_(self) -> bytes:
        sink = io.BytesIO()
        picture = self._picture(_PNG_SIDE).quantize(_COLORS, dither=Image.Dither.NONE)
        picture.save(sink, "PNG", optimize=True)
        return sink.getvalue()

    def _picture(self, side: int) -> Image.Image:
        rows = [self.cells[start : start + _COLUMNS] for start in range(0, len(self.cells), _COLUMNS)]
        return grid_picture(self.title, "", [""] * _COLUMNS, rows, side)


def _fitted(pixels: Pixels, side: int) -> Pixels:
    """Scale an image, uint8 [h, w, 1 or 3], into a square; enlarged to its pixels: uint8 [h', w', 3]."""
    scale = side / max(pixels.shape[:2])
    height, width = (max(1, round(length * scale)) for length in pixels.shape[:2])
    scaled = np.empty((height, width, 3), np.uint8)
    source = np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
    if scale < 1:
        resize_into(source, scaled)
    else:
        cv2.resize(source, (width, height), dst=scaled, interpolation=cv2.INTER_NEAREST)
    return scaled


class Labels:
    """The labels of the shown examples: in words, and drawn into their pictures."""

    def __init__(
        self, parts: Parts, count: int, dataset: Dataset | None, classes: Sequence[str] | None
    ) -> None:
        self._parts = parts
        self._kind = None if dataset is None else dataset.label_kind
        self._points = None if dataset is None else key_points(dataset.features)
        self._names = list(classes or ()) if dataset is None else dataset.version.manifest.label_names
        self._labels = None if parts.labels is None else array_of(parts.labels[:count], "labels")
        self._weights = None if parts.weights is None else array_of(parts.weights[:count], "weights")
        self._sizes = None if parts.sizes is None else array_of(parts.sizes[:count], "sizes")
        for name, values in (("labels", self._labels), ("weights", self._weights)):
            if values is not None and len(values) != count:
                raise UsageError(
                    f"{count} images have {len(values)} {name}", f"give {name} of the same examples"
                )
        if self._labels is not None and self._labels.ndim == 4 and self._labels.shape[-1] == 1:
            self._labels = self._labels[..., 0]
        if self._labels is not None and self._labels.ndim > 3:
            raise UsageError(
                f"labels have the shape {[*self._labels.shape]}",
                "give [b], [b, C], or masks [b, H, W]; show predicted masks by their largest class",
            )

    def words(self, row: int) -> str:
        """Return the label of an example for people."""
        numbers = self._outlines(row).classes.tolist()
        if numbers:
            found = Counter(self._name(number) for number in numbers).most_common()
            return first_of([f"{name} × {times}" if times > 1 else name for name, times in found], _NAMES)
        if self._labels is None:
            return ""
        label = self._labels[row]
        if label.ndim == 2:
            values, counts = np.unique(self._cropped(row), return_counts=True)
            largest = values[np.argsort(-counts, kind="stable")].tolist()
            shown = [self._name(number) for number in largest if self._is_class(number)]
            return first_of(shown, _NAMES) or "no class"
        if label.ndim == 1:
            return self._of_vector(label)
        value = label.item()
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        return self._name(value) if isinstance(value, int) else str(value)

    def notes(self, row: int) -> tuple[str, ...]:
        """Return what else is to be said of an example."""
        return ("padding",) if self._weights is not None and self._weights[row] == 0 else ()

    def drawn(self, row: int, pixels: Pixels) -> Pixels:
        """Return an image with its objects or mask: uint8 [h, w, 3] within a square of ``_SIDE``."""
        scaled = _fitted(pixels, _SIDE)
        if self._labels is not None and self._labels.ndim == 3:
            mask = self._cropped(row)
            shown = [one for one in np.unique(mask).tolist() if self._is_class(one)]
            scaled = lay_over(
                scaled, np.where(mask < 0, 1 << 16, mask), len(self._names) or max(shown, default=0) + 1
            )
        return self._outlines(row).drawn(scaled)

    def _outlines(self, row: int) -> Outlines:
        return self._parts.outlines(row, self._points)

    def _cropped(self, row: int) -> Array:
        """Return the mask of an example without padding."""
        assert self._labels is not None
        height, width = self._labels.shape[1:] if self._sizes is None else self._sizes[row].tolist()
        return self._labels[row, :height, :width]

    def _is_class(self, number: int) -> bool:
        """Whether a pixel of a mask shows a class: the largest number of 8 or 16 bits is none."""
        return 0 <= number < len(self._names) if self._names else number >= 0 and number not in (255, 65_535)

    def _name(self, number: int) -> str:
        if number == NO_CLASS:
            return "no label"
        if not self._names:
            return str(number)
        return self._names[number] if 0 <= number < len(self._names) else f"class {number}, which has no name"

    def _of_vector(self, values: Array) -> str:
        """Return several labels, shares of mixed ones, or numbers."""
        names = self._names if len(self._names) == len(values) else []
        if self._names and not names:
            raise UsageError(
                f"labels have {len(values)} values, and there are {len(self._names)} names",
                "give their own names",
            )
        is_number = self._kind == "targets" or not names
        if is_number:
            words = [readable_figure(value) for value in values.tolist()]
            return first_of(
                [f"{name} {word}" for name, word in zip(names, words, strict=True)] if names else words, 6
            )
        there = np.flatnonzero(values)
        order = there[np.argsort(-values[there], kind="stable")].tolist()
        if (values[there] == 1).all():
            return first_of([names[one] for one in order], _NAMES) or "none"
        return first_of([f"{names[one]} {values[one]:.0%}" for one in order], _NAMES)
