"""Every format and depth, from files of other writers to stored records, against a second decoder.

``CASES`` is the table. Tolerances are in steps of the stored type: 1 of uint8 and uint16, 2⁻²³ of a float32.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import cv2
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.dry_run import dry_run
from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.codecs.prepare import prepare_image
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.drift.figures import DriftLimits
from shardmill.infra.dataset.drift.measuring import measure
from shardmill.infra.dataset.exports import FORMATS
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError, UsageError
from shardmill.infra.format.examples import ImageRecord, parse_example
from shardmill.infra.format.layout import croissant_file
from shardmill.infra.format.records import unpack_record
from shardmill.infra.preparation import Preparation, SampleKind
from tests.documentation.test_dataset_format import PAGE, read
from tests.samples.images import references
from tests.samples.preparing.prepared import rows, run

Samples = npt.NDArray[Any]
Decoder = Callable[[bytes], Samples]
HEIGHT, WIDTH = 24, 36
SIDE = 16  # to which the images of the run "kept" are scaled


def scene(channels: int, seed: int) -> Samples:
    """Smooth shades, 0 to 1: float64 [H, W, C]."""
    noise = np.random.default_rng(seed).random((HEIGHT, WIDTH, channels))
    smooth = cv2.GaussianBlur(noise, (0, 0), 2).reshape(noise.shape)
    return np.asarray((smooth - smooth.min()) / np.ptp(smooth))


def of(dtype: str, channels: int, seed: int) -> Samples:
    return np.rint(scene(channels, seed) * np.iinfo(dtype).max).astype(dtype)


def by_tifffile(pixels: Samples, **options: Any) -> bytes:
    stream = io.BytesIO()
    options = {"photometric": "minisblack", "planarconfig": "contig"} | options
    if options["planarconfig"] == "separate":
        pixels = np.moveaxis(pixels, 2, 0)
    tifffile.imwrite(stream, pixels if pixels.shape[2] > 1 else pixels[:, :, 0], **options)
    return stream.getvalue()


def by_pillow(pixels: Samples, name: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, name, **options)
    return stream.getvalue()


def opencv(data: bytes) -> Samples:
    """RGB, grey or RGBA as OpenCV reads them."""
    pixels: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    pixels = pixels.reshape(HEIGHT, WIDTH, -1)
    return pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]] if pixels.shape[2] > 1 else pixels


def libtiff(data: bytes) -> Samples:
    samples = imagecodecs.tiff_decode(data, index=0).reshape(-1)
    planes = tifffile.TiffFile(io.BytesIO(data)).pages[0].planarconfig == 2
    if planes:
        return np.moveaxis(samples.reshape(-1, HEIGHT, WIDTH), 0, 2)
    return samples.reshape(HEIGHT, WIDTH, -1)


def shades(decoder: Decoder, white: float) -> Decoder:
    """What another decoder reads, as RGB from 0 to 65,535, on white."""

    def read_as_rgb(data: bytes) -> Samples:
        pixels = decoder(data).astype(np.float64) / white
        colours = np.broadcast_to(
            pixels[:, :, :3] if pixels.shape[2] >= 3 else pixels[:, :, :1], (HEIGHT, WIDTH, 3)
        )
        opacity = pixels[:, :, 3:] if pixels.shape[2] == 4 else 1
        return (colours * opacity + 1 - opacity) * 65535

    return read_as_rgb


@dataclass(frozen=True)
class Case:
    """A file, the run that prepares it, and how another library reads what should be stored."""

    name: str
    run: str
    data: bytes
    reference: Decoder
    steps: float


RUNS: dict[str, dict[str, Any]] = {
    "shades": {"depth": 16, "resize": "none"},
    "kept": {"depth": "keep", "channels": "keep", "size": SIDE},
    "numbers": {"depth": "float32", "channels": 2, "resize": "none"},
    "bytes": {"channels": 4, "resize": "none"},
}
STORED = {
    "shades": ("uint16", 3, "png"),
    "kept": ("uint16", 5, "array"),
    "numbers": ("float32", 2, "array"),
    "bytes": ("uint8", 4, "array"),
}


def area(data: bytes) -> Samples:
    return references.area(libtiff(data), SIDE, WIDTH * SIDE // HEIGHT)


def turned(data: bytes) -> Samples:
    return references.area(np.rot90(libtiff(data), -1), WIDTH * SIDE // HEIGHT, SIDE)


def high_bytes(data: bytes) -> Samples:
    return libtiff(data).astype(np.float64) / 257


def png(channels: int, seed: int) -> bytes:
    return bytes(imagecodecs.png_encode(of("uint16", channels, seed)))


def bands(number: int, seed: int, **options: Any) -> bytes:
    return by_tifffile(of("uint16", number, seed), **options)


FLAT, SCALED = {"photometric": "rgb", "compression": "lzw"}, {"compression": "zlib", "predictor": True}
TILES = {"tile": (16, 16), "byteorder": ">", "compression": "zstd"}
LOSSLESS, FINE = {"lossless": True}, {"quality": 95, "subsampling": 0}
PLANES = {"planarconfig": "separate", **SCALED}
TURNED = {"extratags": [(274, 3, 1, 6, True)]}
TWELVE = by_tifffile(of("uint16", 1, 6) >> 4, bitspersample=12)
RANGES = {
    "float64": scene(2, 15) * 1e9 - 7,
    "float32": (scene(2, 14) * 400 - 273).astype(np.float32),
    "float16": scene(2, 16).astype(np.float16),
    "int16": (scene(2, 17) * 60000 - 30000).astype(np.int16),
    "uint32": (scene(2, 18) * 4e9).astype(np.uint32),
}
ROUNDED = ("float64", "uint32")
CASES = [
    Case("PNG of 16 bits", "shades", png(3, 1), shades(opencv, 65535), 0),
    Case("grey PNG of 16 bits", "shades", png(1, 2), shades(opencv, 65535), 0),
    Case("RGBA PNG of 16 bits", "shades", png(4, 3), shades(opencv, 65535), 0.5),
    Case("PNG of 8 bits", "shades", by_pillow(of("uint8", 3, 4), "PNG"), shades(opencv, 255), 0),
    Case("TIFF of 16 bits", "shades", bands(3, 5, **FLAT), shades(opencv, 65535), 0),
    Case("grey TIFF of 12 bits", "shades", TWELVE, shades(libtiff, 4095), 0.5),
    Case("TIFF of floats", "shades", by_tifffile(scene(1, 7).astype(np.float32)), shades(libtiff, 1), 0.5),
    Case("JPEG", "shades", by_pillow(of("uint8", 3, 8), "JPEG", **FINE), shades(opencv, 255), 257),
    Case("WebP", "shades", by_pillow(of("uint8", 3, 9), "WEBP", **LOSSLESS), shades(opencv, 255), 0),
    Case("5 channels side by side", "kept", bands(5, 10), area, 0.51),
    Case("5 channels in planes", "kept", bands(5, 11, **PLANES), area, 0.51),
    Case("5 channels in tiles", "kept", bands(5, 12, **TILES), area, 0.51),
    Case("5 channels, turned", "kept", bands(5, 13, **TURNED), turned, 0.51),
    *(
        Case(f"TIFF of {dtype}", "numbers", by_tifffile(pixels), libtiff, 0.5 if dtype in ROUNDED else 0)
        for dtype, pixels in RANGES.items()
    ),
    Case("RGBA PNG", "bytes", by_pillow(of("uint8", 4, 19), "PNG"), opencv, 0),
    Case("4 bands of 8 bits", "bytes", by_tifffile(of("uint8", 4, 20)), libtiff, 0),
    Case("4 bands of 16 bits", "bytes", bands(4, 21), high_bytes, 1),
]


def read_array(image: bytes, shape: tuple[int, int, int], dtype: str) -> Samples:
    """By the code of docs/dataset-format.md."""
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?def read_array.*?)```", PAGE, re.DOTALL)[0], names)
    return np.asarray(names["read_array"](image, *shape, dtype))


def records(version: DatasetVersion) -> dict[str, ImageRecord]:
    """The record of each image, by its URI."""
    found = {}
    for shard in version.manifest.shards:
        content = version.storage.read_bytes(shard.path)
        for row in version.index(shard).to_pylist():
            stored = content[row["offset_bytes"] :][: row["length_bytes"]]
            found[row["source_uri"]] = parse_example(unpack_record(stored, version.manifest.container))
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The root of each run."""
    roots = {}
    for name, image in RUNS.items():
        source, roots[name] = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("datasets")
        (source / "all").mkdir()
        for case in CASES:
            if case.run == name:
                (source / "all" / case.name).write_bytes(case.data)
        run(source, roots[name], image=image, splits={"train": 1, "validation": 0, "test": 0})
    return roots


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.run}: {case.name}")
def test_stored_samples_are_those_of_a_second_decoder(case: Case, prepared: dict[str, Path]) -> None:
    version = Catalog(prepared[case.run]).open("d")
    dtype, channels, encoding = STORED[case.run]
    manifest = version.manifest
    assert (manifest.dtype, manifest.channels, manifest.image_encoding) == (dtype, channels, encoding)
    record = records(version)[f"all/{case.name}"]
    read = read_array(record.image, record.shape, dtype) if encoding == "array" else opencv(record.image)
    expected = case.reference(case.data).astype(np.float64)
    assert (read.dtype, read.shape) == (dtype, expected.shape)
    assert record.shape == expected.shape
    step = np.spacing(np.abs(expected).astype(np.float32)) if dtype == "float32" else 1.0
    assert (np.abs(read - expected) / step).max() <= case.steps + 1e-6  # of float64


@pytest.mark.parametrize("name", RUNS)
def test_the_index_has_the_statistics_in_units_of_the_samples(name: str, prepared: dict[str, Path]) -> None:
    version = Catalog(prepared[name]).open("d")
    dtype, channels, encoding = STORED[name]
    found = {
        row["source_uri"]: row
        for shard in version.manifest.shards
        for row in version.index(shard).to_pylist()
    }
    every = []
    for uri, record in records(version).items():
        read = read_array(record.image, record.shape, dtype) if encoding == "array" else opencv(record.image)
        pixels = read.reshape(-1, channels).astype(np.float64)
        assert found[uri]["pixel_mean"] == pytest.approx(pixels.mean(axis=0).tolist(), rel=1e-6)
        assert found[uri]["pixel_std"] == pytest.approx(pixels.std(axis=0).tolist(), rel=1e-5)
        every.append(pixels)
    together, said = np.concatenate(every), version.manifest.statistics["train"].pixels
    assert said is not None
    assert said.mean == pytest.approx(together.mean(axis=0).tolist(), rel=1e-6)
    assert said.std == pytest.approx(together.std(axis=0).tolist(), rel=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_a_reader_written_from_the_page_reads_them(name: str, prepared: dict[str, Path]) -> None:
    counted = read(prepared[name] / "d")
    assert sum(counted["splits"].values()) == sum(case.run == name for case in CASES)


def test_kept_samples_must_be_the_same_in_all_images(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    for name, data in (
        ("5", by_tifffile(of("uint16", 5, 1))),
        ("5 too", by_tifffile(of("uint16", 5, 2))),
        ("3", by_pillow(of("uint8", 3, 3), "JPEG")),
    ):
        (source / "a" / name).write_bytes(data)
    keep: dict[str, Any] = {"depth": "keep", "channels": "keep", "size": SIDE}
    config = PrepareConfig.model_validate({"image": keep})
    foreseen = dry_run(
        JobRequest(source=str(source), dataset="d", root=str(tmp_path / "datasets"), config=config)
    )
    assert "2 images of uint16 with 5 channels, 1 image of uint8" in foreseen["warnings"][-1]
    with pytest.raises(DataError) as caught:
        run(source, tmp_path / "datasets", image=keep)
    assert "2 images of uint16 with 5 channels, 1 image of uint8 with 3 channels" in caught.value.message
    assert caught.value.remedy is not None
    assert "image.depth" in caught.value.remedy
    assert "image.channels" in caught.value.remedy
    run(source, tmp_path / "datasets", image=keep, filter={"ignore": ["3"]})
    # A later version counts what the one before stores.
    with pytest.raises(DataError, match="2 images of uint16 with 5 channels, 1 image of uint8"):
        run(source, tmp_path / "datasets", image=keep)


def test_common_images_that_are_kept_are_stored_as_ever(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    for seed in range(2):
        pixels = of("uint8", 3, seed)
        (source / "a" / f"{seed}.jpg").write_bytes(by_pillow(pixels[:, :, 0], "JPEG"))
    run(source, tmp_path, image={"depth": "keep", "channels": "keep", "size": SIDE})
    version = Catalog(tmp_path).open("d")
    assert (version.manifest.dtype, version.manifest.channels) == (None, None)
    assert version.manifest.samples == SampleKind("uint8", 1)
    usual = Preparation(channels=1, size=SIDE)
    for uri, record in records(version).items():
        assert record.image == prepare_image((source / uri).read_bytes(), usual).image


def test_what_is_not_wanted_is_counted(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    broken = scene(2, 1).astype(np.float32)
    broken[3, 4] = np.nan, np.inf
    files = {
        "kept": by_tifffile(scene(2, 2).astype(np.float32)),
        "broken": by_tifffile(broken),
        "wide": by_tifffile(scene(3, 3).astype(np.float32)),
    }
    for name, data in files.items():
        (source / "a" / name).write_bytes(data)
    run(source, tmp_path, image={"depth": "float32", "channels": 2}, failure_budget=1)
    found = rows(Catalog(tmp_path).open("d"))
    assert {uri: row["reason"] for uri, row in found.items()} == {
        "a/broken": "not_finite", "a/kept": None, "a/wide": "channels",
    }  # fmt: skip
    assert "2 of 1,728 samples are not finite (1 NaN, 1 infinite)" in found["a/broken"]["message"]


def test_later_versions_keep_their_samples(tmp_path: Path) -> None:
    """Planned by ranges on top of another version, compacted and refused by exports."""
    source, root = tmp_path / "source", tmp_path / "datasets"
    (source / "a").mkdir(parents=True)
    for number in range(1, 7):
        (source / "a" / str(number)).write_bytes(bands(5, number))
        if number in (4, 6):
            how = {"image": RUNS["kept"], "runner": {"processes": 2, "plan_ranges": 3 if number == 6 else 1}}
            run(
                source, root, shards={"num_shards": 1}, splits={"train": 1, "validation": 0, "test": 0}, **how
            )
    catalog = Catalog(root)
    first, second = catalog.open("d@1"), catalog.open("d@2")
    assert second.manifest.parent == 1
    titles = {figure.title for figure in measure(first, second, DriftLimits()).figures}
    assert "width of the source" in titles
    assert not titles & {"brightness", "contrast", "red against green"}
    compact(catalog, "d")
    third = catalog.open("d")
    assert (third.version, third.manifest.samples) == (3, SampleKind("uint16", 5))
    assert {uri: record.image for uri, record in records(third).items()} == {
        uri: record.image for uri, record in records(second).items()
    }
    assert sum(read(root / "d")["splits"].values()) == 6
    assert b"array, uint16 with 5 channels" in third.storage.read_bytes(croissant_file(3))
    for form in set(FORMATS) - {"folder", "webdataset"}:
        with pytest.raises(UsageError, match="d@3 are uint16 with 5 channels"):
            export(third, tmp_path / "exported", form)


def exported_files(version: DatasetVersion, form: str, folder: Path) -> dict[str, bytes]:
    """The images of an export, by their ids."""
    export(version, folder, form)
    if form == "folder":
        return {path.stem: path.read_bytes() for path in (folder / "train" / "all").iterdir()}
    found = {}
    for path in folder.glob("*.tar"):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith((".npy", ".png")):
                    found[member.name[:16]] = cast(BinaryIO, tar.extractfile(member)).read()
    return found


@pytest.mark.parametrize("form", ["folder", "webdataset"])
@pytest.mark.parametrize("name", RUNS)
def test_exports_hold_the_stored_samples(
    name: str, form: str, prepared: dict[str, Path], tmp_path: Path
) -> None:
    """As numpy and libpng read them."""
    version = Catalog(prepared[name]).open("d")
    dtype, _, encoding = STORED[name]
    found = exported_files(version, form, tmp_path / "exported")
    assert len(found) == version.manifest.accounting.num_records
    for record in records(version).values():
        if encoding == "array":
            pixels = np.load(io.BytesIO(found[record.id]), allow_pickle=False)
            assert (pixels.dtype, pixels.shape) == (dtype, record.shape)
            assert np.array_equal(pixels, read_array(record.image, record.shape, dtype))
        else:
            assert np.array_equal(imagecodecs.png_decode(found[record.id]), opencv(record.image))
