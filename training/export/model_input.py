"""What the model of a run sees of an image: from the bytes of its file to pixels, and the way back.

The file becomes a stored image as when the dataset was prepared, and the model sees of it what evaluation
sees of a record. So the pixels of a file are those of its record, to the bit. ``model-input.json`` keeps the
settings beside the exported model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from shardmill.infra.arguments import checked
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.geometry import Geometry
from shardmill.infra.codecs.masks import Numbers
from shardmill.infra.codecs.prepare import LIBRARY_FAULTS, prepare_image
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.preparation import Preparation, SampleKind, SampleType
from shardmill.infra.settings import Settings
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.augment.windows import fixed_windows
from shardmill.training.config.data import Decoding, ImageOptions
from shardmill.training.models.spec import Fit, samples_read
from shardmill.training.reading import RecordReader
from shardmill.training.reading.decode import Pixels, Window, decode_window, luma
from shardmill.training.reading.example_spec import ExampleSpec

FILE = "model-input.json"
_CORRUPT, _OTHER = "corrupt", "other_samples"


@dataclass(frozen=True, slots=True)
class View:
    """The part of a picture that a model sees, and how large.

    Attributes:
        upright: height and width of the upright picture (pixels).
        geometry: the steps from it to the stored image.
        window: y, x, height, width of the part of the stored image that is seen (pixels).
        size: height and width of the model's input (pixels).
    """

    upright: tuple[int, int]
    geometry: Geometry
    window: Window
    size: int

    def edges(self) -> npt.NDArray[np.float64]:
        """Return the edges of the model's input in the picture (pixels): top, left, bottom, right.

        float64 [4]. Where the stored image is padded they lie outside of the picture.
        """
        return np.array([self._in_picture(end, axis) for end in (0.0, 1.0) for axis in (0, 1)])

    def boxes(self, boxes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the boxes in the picture that a model has found.

        Args:
            boxes: [N, 4], top, left, bottom, right, relative to the model's input.

        Returns:
            float64 [N, 4], in pixels of the upright picture, cut off at its edges. A box around padding alone
            has no area.
        """
        placed: npt.NDArray[np.float64] = self.points(np.asarray(boxes).reshape(-1, 2)).reshape(-1, 4)
        return placed.clip(0.0, np.array(self.upright * 2))

    def points(self, points: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return places in the model's input [N, 2], y and x, in pixels of the picture, also beyond it."""
        edges = self.edges()
        placed: npt.NDArray[np.float64] = edges[:2] + np.asarray(points, np.float64) * (edges[2:] - edges[:2])
        return placed

    def mask(self, numbers: Numbers, ignore: int) -> Numbers:
        """Scale the classes of the model's pixels to the picture, by nearest neighbour.

        Args:
            numbers: [S, S].
            ignore: the number of pixels that the model did not see.

        Returns:
            [H, W] of the same type, as large as the upright picture.
        """
        rows, columns = self._seen_at(0), self._seen_at(1)
        found: Numbers = numbers[rows[:, np.newaxis], columns]
        found[rows < 0] = ignore
        found[:, columns < 0] = ignore
        return found

    def _in_picture(self, share: float, axis: int) -> float:
        """Return the place in the picture (pixels) of one in the model's input (0 to 1), along an axis."""
        to = self.geometry
        in_stored = self.window[axis] + share * self.window[2 + axis]
        return to.window[axis] + (in_stored - to.offset[axis]) * to.window[2 + axis] / to.scaled[axis]

    def _seen_at(self, axis: int) -> npt.NDArray[np.int64]:
        """Return the pixel of the model below the centre of each of the picture, along an axis; -1: none."""
        to = self.geometry
        cut, side, scaled = to.window[axis], to.window[2 + axis], to.scaled[axis]
        pixels = np.arange(self.upright[axis], dtype=np.int64)
        # Twice the centres, so that all numbers are whole: first in units of 1 / (2 * side) stored pixels.
        in_stored = (2 * (pixels - cut) + 1) * scaled + 2 * side * (to.offset[axis] - self.window[axis])
        seen = in_stored * self.size // (2 * side * self.window[2 + axis])
        is_seen = (pixels >= cut) & (pixels < cut + side) & (seen >= 0) & (seen < self.size)
        return np.where(is_seen, seen, -1)


@dataclass(frozen=True, slots=True)
class Seen:
    """An image as a model sees it.

    Attributes:
        pixels: [S, S, C], of the type that the model takes.
        view: the part of the upright picture that it shows.
    """

    pixels: Pixels
    view: View


@checked
class ModelInput(Settings):
    """What a model sees of image files.

    Attributes:
        preparation: how files became the records that it learned from.
        image_size: height and width of its input, S (pixels).
        fit: what it sees of stored images that are not square: the central square, or all.
        image_channels: C.
        dtype: the type of its input.
        decoding: how it sees large JPEGs (``DataSettings.decoding``).
    """

    preparation: Preparation
    image_size: int
    fit: Fit = "crop"
    image_channels: int = 3
    dtype: SampleType = "uint8"
    decoding: Decoding = "scaled"

    @classmethod
    def of(cls, records: RecordReader, spec: ExampleSpec) -> Self:
        """Return what a model sees that learned from records."""
        manifest = records.split.version.manifest
        how = preparation_of(manifest)
        if how is None:  # it says nothing of its images, so they are taken as they are
            channels = records.first_sound().channels
            common = {"channels": 1 if channels == 1 else 3}
            kept = common if manifest.samples.is_common else {"depth": "keep", "channels": "keep"}
            how = Preparation.model_validate({"resize": "none", "encoding": "png", **kept})
        samples = samples_read(manifest, spec.data.image_channels)
        seen = {name: getattr(spec.data, name) for name in ImageOptions.__annotations__}
        settled = {"fit": spec.fit, "image_channels": samples.channels, "dtype": samples.dtype}
        return cls.model_validate({"preparation": how, "image_size": spec.image_size} | seen | settled)

    @property
    def samples(self) -> SampleKind:
        """The samples of its input."""
        return SampleKind(self.dtype, self.image_channels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of its input."""
        return self.image_size, self.image_size, self.image_channels

    @property
    def examples(self) -> ExampleSpec:
        """The same of stored records."""
        seen = self.model_dump(include={"image_size", *ImageOptions.__annotations__})
        return ExampleSpec.of_options(**seen)

    def see(self, data: bytes) -> Seen:
        """Return what the model sees of an image file.

        Args:
            data: the file: of any format that ``shardmill prepare`` reads.

        Raises:
            shardmill.infra.codecs.ImageRejected: it is not a whole image, or of a kind that is not read.
        """
        try:
            stored = prepare_image(data, self.preparation)
        except LIBRARY_FAULTS as error:
            raise ImageRejected(_CORRUPT, f"{type(error).__name__}: {error}") from error
        found, decoded = stored.samples, self.samples.decoded
        if found.decoded != decoded:
            raise ImageRejected(_OTHER, f"it is {found}, and the model takes {self.samples}")
        shape = stored.height, stored.width, found.channels
        window = self.window(stored.height, stored.width)
        pixels = np.empty((self.image_size, self.image_size, decoded.channels), decoded.dtype)
        encoding = found.stored_as(self.preparation.encoding)
        decode_window(stored.image, encoding, shape, window, pixels, decoding=self.decoding)
        view = View(stored.upright, stored.geometry, window, self.image_size)
        return Seen(luma(pixels) if self.image_channels < decoded.channels else pixels, view)

    def window(self, height: int, width: int) -> Window:
        """Return the part of a stored image that evaluation sees: y, x, height, width (pixels)."""
        top, left, rows, columns = fixed_windows(np.array([height]), np.array([width]), self.fit)[0].tolist()
        return top, left, rows, columns

    def encode(self) -> bytes:
        """Return the content of ``model-input.json``."""
        return (dump_json(self.model_dump(mode="json"), indent=1) + "\n").encode("ascii")

    def write(self, run_dir: Path) -> None:
        """Write ``model-input.json`` to the folder of a run, beside its exports, and to its export."""
        for folder in (run_dir, run_dir / "export"):
            Storage.at(folder).write_atomic(FILE, self.encode())


@checked
def read_model_input(path: str | Path) -> ModelInput:
    """Read what a model sees of image files.

    Args:
        path: a ``model-input.json``, or the folder that has one.

    Raises:
        CorruptDataError: the file is missing or damaged.
    """
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    try:
        return ModelInput.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise CorruptDataError(
            f"{file} cannot be read: {error}", "restore it from a copy, or train again with run.fresh=true"
        ) from error


def preparation_of(manifest: Manifest) -> Preparation | None:
    """Return how the files of a dataset version became its records; None: it does not say."""
    settings: Mapping[str, Any] | None = manifest.config.get("image")
    return None if settings is None else Preparation.of(settings)
