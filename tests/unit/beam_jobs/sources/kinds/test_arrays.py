"""Images in arrays: NumPy and IDX files, their roles by their names, and what is refused in words."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.io  # type: ignore[import-untyped]

from shardmill.beam_jobs.sources.kinds.arrays.reading import stored_png
from shardmill.infra.codecs import decode
from shardmill.infra.errors import ConfigError, NotFoundError
from tests.samples.images.photos import write
from tests.samples.sources.rows import idx_bytes, images_of, listed, outcomes

GREY = np.random.default_rng(0).integers(0, 256, (6, 5, 7), dtype=np.uint8)
COLOR = np.random.default_rng(1).integers(0, 256, (6, 5, 7, 3), dtype=np.uint8)
LOST = ("broken_container", "too_large")
LABELS = np.array([3, 1, 2, 3, 1, 2])


def write_mnist(root: Path) -> None:
    write(
        root,
        {
            "train-images-idx3-ubyte.gz": gzip.compress(idx_bytes(GREY)),
            "train-labels-idx1-ubyte.gz": gzip.compress(idx_bytes(LABELS.astype(np.uint8))),
            "t10k-images-idx3-ubyte": idx_bytes(GREY[:2]),
            "t10k-labels-idx1-ubyte": idx_bytes(LABELS[:2].astype(np.uint8)),
        },
    )


def right_pixels(image: bytes | tuple[str, str], pixels: npt.NDArray[np.uint8]) -> bool:
    assert isinstance(image, bytes), image
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    decoded = decode(image, channels).pixels
    return bool(np.array_equal(decoded, pixels.reshape(decoded.shape)))


@pytest.mark.parametrize("in_run", [True, False])
def test_the_files_of_mnist_are_understood_without_settings(tmp_path: Path, in_run: bool) -> None:
    write_mnist(tmp_path / "source")
    found = outcomes(listed(tmp_path / "source", "arrays"))
    assert found == {
        "t10k-images-idx3-ubyte": (None, None, "row_file"),
        "t10k-images-idx3-ubyte#row=0000000": ("3", "test", None),
        "t10k-images-idx3-ubyte#row=0000001": ("1", "test", None),
        "t10k-labels-idx1-ubyte": (None, None, "row_file"),
        "train-images-idx3-ubyte.gz": (None, None, "row_file"),
        **{f"train-images-idx3-ubyte.gz#row={row:07}": (str(LABELS[row]), "train", None) for row in range(6)},
        "train-labels-idx1-ubyte.gz": (None, None, "row_file"),
    }
    images = list(images_of(tmp_path / "source", "arrays", tmp_path / "run" if in_run else None).values())
    assert [stored_png(pixels[:, :, None]) for pixels in (*GREY[:2], *GREY)] == images
    assert all(right_pixels(image, pixels) for image, pixels in zip(images[2:], GREY, strict=True))


def test_the_images_of_emnist_are_turned_upright(tmp_path: Path) -> None:
    square = GREY[:, :, :5]
    data = {"images-idx3": square, "labels-idx1": LABELS.astype(np.uint8)}
    write(
        tmp_path, {f"emnist-letters-train-{name}-ubyte": idx_bytes(values) for name, values in data.items()}
    )
    images = list(images_of(tmp_path, "arrays").values())
    assert all(right_pixels(image, pixels.T) for image, pixels in zip(images, square, strict=True))


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("in_run", [True, False])
def test_the_files_of_svhn(tmp_path: Path, is_packed: bool, in_run: bool) -> None:
    (tmp_path / "source").mkdir()
    path = tmp_path / "source" / "train_32x32.mat"
    images = COLOR.transpose(1, 2, 3, 0)
    labels = LABELS[:, np.newaxis].astype(np.uint8)
    scipy.io.savemat(path, {"note": "text", "y": labels, "X": images}, do_compression=is_packed)
    found = outcomes(listed(tmp_path / "source", "arrays"))
    assert found["train_32x32.mat#X=0000001"] == ("1", "train", None)
    stored = images_of(tmp_path / "source", "arrays", tmp_path / "run" if in_run else None)
    assert len(stored) == len(COLOR)
    assert all(right_pixels(one, pixels) for one, pixels in zip(stored.values(), COLOR, strict=True))


def test_files_of_matlab_that_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"train_32x32.mat": b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512)})
    scipy.io.savemat(
        tmp_path / "test_32x32.mat", {"X": COLOR.transpose(1, 2, 3, 0), "y": LABELS[:, np.newaxis]}
    )
    whole = (tmp_path / "test_32x32.mat").read_bytes()
    (tmp_path / "extra_32x32.mat").write_bytes(whole[:150])
    found = listed(tmp_path, "arrays").table.to_pylist()
    messages = {row["uri"]: row["message"] for row in found if row["reason"] == "broken_container"}
    assert messages.keys() == {"train_32x32.mat", "extra_32x32.mat"}
    assert "save it with -v7" in messages["train_32x32.mat"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_of_arrays_as_keras_has_them(tmp_path: Path, save: Any) -> None:
    (tmp_path / "source").mkdir()
    arrays = {"x_train": COLOR, "y_train": LABELS[:, None], "x_test": COLOR[:2], "y_test": LABELS[:2]}
    save(tmp_path / "source" / "cifar.npz", **arrays)
    found = outcomes(listed(tmp_path / "source", "arrays", class_names=["a", "b", "c", "d"]))
    assert list(found) == [
        "cifar.npz",
        *(f"cifar.npz#x_test={row:07}" for row in range(2)),
        *(f"cifar.npz#x_train={row:07}" for row in range(6)),
    ]
    assert found["cifar.npz#x_test=0000000"] == ("d", "test", None)
    assert found["cifar.npz#x_train=0000005"] == ("c", "train", None)
    images = images_of(tmp_path / "source", "arrays", tmp_path / "run")
    assert right_pixels(images["cifar.npz#x_test=0000001"], COLOR[1])
    assert right_pixels(images["cifar.npz#x_train=0000005"], COLOR[5])
    assert images == images_of(tmp_path / "source", "arrays"), "the same outside of a run"


def test_files_of_arrays_with_texts_groups_and_folders(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        np.save(tmp_path / split / "images.npy", COLOR)
        np.save(tmp_path / split / "labels.npy", np.array(["hat", "", "shirt", "hat", "hat", "cap"]))
        np.save(tmp_path / split / "patients.npy", np.arange(6) // 2)
        np.save(tmp_path / split / "weights.npy", np.ones(6))
    listing = listed(tmp_path, "arrays", group="patients")
    found = outcomes(listing)
    assert found["val/images.npy#row=0000000"] == ("hat", "validation", None)
    assert found["train/images.npy#row=0000001"] == (None, "train", "no_label")
    assert found["train/weights.npy"] == (None, None, "row_file")
    assert len(found) == 2 * (4 + 6)
    groups = dict(zip(listing.table["uri"].to_pylist(), listing.table["group"].to_pylist(), strict=True))
    assert groups["val/images.npy#row=0000005"] == "2"
    assert right_pixels(images_of(tmp_path, "arrays")["val/images.npy#row=0000004"], COLOR[4])


def test_names_and_splits_by_settings(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", arr_0=GREY, arr_1=LABELS.astype(float), part=["train", "dev", "?"] * 2)
    found = outcomes(listed(tmp_path, "arrays", image="arr_0", label="arr_1", split="part"))
    assert list(found.values())[1:4] == [
        ("3", "train", None), ("1", "validation", None), ("2", None, "unknown_split")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": GREY / 255, "y": LABELS}, r"'x' in a.npz are float64, not uint8 .*\(images \* 255\)"),
        ({"x": GREY.astype(np.uint16), "y": LABELS}, r"uint16, not uint8 .*astype\('uint8'\)"),
        ({"x": COLOR.transpose(0, 3, 1, 2), "y": LABELS}, r"\[6, 3, 5, 7\] \(the channels come first"),
        ({"x": GREY.reshape(6, 35), "y": LABELS}, r"\[6, 35\] \(the images are flat"),
        ({"x": np.asfortranarray(COLOR), "y": LABELS}, "Fortran order.*ascontiguousarray"),
        ({"x": GREY, "y": LABELS[:5]}, r"shape \[5\], but there are 6 images"),
        ({"x": GREY, "y": np.eye(6)}, r"shape \[6, 6\], but there are 6 images"),
        ({"x": GREY}, "no labels for the images 'x' in a.npz"),
        ({"x": GREY, "y": LABELS, "labels": LABELS}, "could both hold the label .*source.columns.label=NAME"),
        ({"a": GREY, "b": LABELS}, r"cannot be told; there are a \[6, 5, 7\] uint8, b \[6\] int64"),
        ({"x": GREY, "y": LABELS.astype("datetime64[D]")}, "neither numbers nor texts"),
    ],
)
def test_what_cannot_be_images_is_refused_with_a_remedy(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ConfigError, match=message):
        listed(tmp_path, "arrays")


def test_python_objects_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", GREY)
    np.save(tmp_path / "labels.npy", np.array(["a", None], object), allow_pickle=True)
    with pytest.raises(ConfigError, match=r"no labels for the images images\.npy"):
        listed(tmp_path, "arrays")
    found = listed_with(tmp_path, "x.npy", b"\x93NUMPY")
    assert found == "it cannot be read as an array"


def listed_with(root: Path, name: str, data: bytes) -> str | None:
    """The start of the message of a damaged file beside whole ones."""
    np.save(root / "labels.npy", LABELS)
    write(root, {name: data})
    listing = listed(root, "arrays")
    messages = dict(zip(listing.table["uri"].to_pylist(), listing.table["message"].to_pylist(), strict=True))
    assert outcomes(listing)[name][2] == "broken_container"
    return str(messages[name]).partition(":")[0]


def test_rows_behind_the_end_of_a_file_are_lost_one_by_one(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", GREY)
    np.save(tmp_path / "labels.npy", LABELS)
    data = (tmp_path / "images.npy").read_bytes()
    (tmp_path / "images.npy").write_bytes(data[: -2 * 35 - 1])
    images = list(images_of(tmp_path, "arrays").values())
    assert [image if isinstance(image, tuple) else None for image in images] == [
        *(None,) * 3,
        *(
            ("broken_container", f"its file is damaged there: it ends in or before row {row}")
            for row in (3, 4, 5)
        ),
    ]


def test_files_cut_at_any_place_crash_nothing_and_lose_nothing_in_front(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "whole.npz", x=GREY, y=LABELS)
    samples = {
        "images.idx.gz": gzip.compress(idx_bytes(GREY)),
        "images.npy": npy_bytes(tmp_path, GREY),
        "whole.npz": (tmp_path / "whole.npz").read_bytes(),
    }
    draw = random.Random(0)
    for number, (name, data) in enumerate(samples.items()):
        for trial in range(12):
            root = tmp_path / f"{number}-{trial}"
            damaged = bytearray(data[: draw.randrange(len(data))] if trial % 2 else data)
            for _ in range(trial // 2):
                if damaged:
                    damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            write(root, {name: bytes(damaged)})
            np.save(root / "labels.npy", LABELS)
            try:
                images = images_of(root, "arrays", root / "run").values()
            except (ConfigError, NotFoundError):
                continue  # its header says something else, or nothing
            for row, image in enumerate(images):
                assert isinstance(image, bytes) or image[0] in LOST, (name, trial, row)


def npy_bytes(root: Path, values: npt.NDArray[np.uint8]) -> bytes:
    np.save(root / "scratch.npy", values)
    data = (root / "scratch.npy").read_bytes()
    (root / "scratch.npy").unlink()
    return data
