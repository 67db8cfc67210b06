"""The demo's folder: the same every time, and as untidy as it says."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from shardmill.flows.cli.demo import images
from shardmill.flows.cli.demo.images import KEPT, write_digits
from shardmill.infra.codecs import ImageRejected, decode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    planted = write_digits(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == planted.num_files
    assert (planted.num_duplicates, planted.num_conflicts, planted.num_broken, planted.num_other) == (
        7,
        1,
        4,
        2,
    )
    return folder


def test_the_digits_are_those_of_the_published_data() -> None:
    published = load_digits()
    with Image.open(Path(images.__file__).with_name("digits.png")) as picture:
        sheet = np.asarray(picture)
    for digit, kept in enumerate(KEPT):
        row = sheet[8 * digit : 8 * digit + 8, : 8 * kept].reshape(8, kept, 8).transpose(1, 0, 2)
        np.testing.assert_array_equal(row, 15 * published.images[published.target == digit][:kept])


def test_what_is_wrong_with_it_is_what_it_says(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".DS_Store")
    broken = []
    for path in files:
        try:
            decode(path.read_bytes())
        except ImageRejected as rejected:
            broken.append((path.relative_to(folder).as_posix(), rejected.reason))
    assert broken == [
        ("2/download-interrupted.jpg", "truncated"),
        ("3/empty.png", "empty"),
        ("5/half-copied.jpg", "truncated"),
        ("8/notes.png", "unknown_format"),
    ]
    assert len(broken) / len(files) < 0.01  # within the failure budget that the demo sets
    digests = Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    assert sum(count - 1 for count in digests.values()) == 7
    of_one = {
        path.parent.name for path in files if path.read_bytes() == (folder / "7/1_025.jpg").read_bytes()
    }
    assert of_one == {"1", "7"}
    assert sum(KEPT) == len(files) - 7 - 4


def test_a_second_time_touches_nothing(folder: Path) -> None:
    before = {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()
    }
    write_digits(folder)
    after = {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()
    }
    assert after == before


def test_a_damaged_file_is_made_again(folder: Path) -> None:
    path = folder / "0" / "0_000.png"
    data = path.read_bytes()
    path.write_bytes(b"")
    write_digits(folder)
    assert path.read_bytes() == data


def test_neither_size_nor_paper_tells_the_digit(folder: Path) -> None:
    """A network must not be able to cheat: each size and tint occurs in each class about equally often."""
    for digit in range(10):
        looks = Counter()
        for path in folder.glob(f"{digit}/{digit}_*"):
            pixels = decode(path.read_bytes()).pixels
            looks[pixels.shape[0], int(pixels[0, 0, 2]) // 4] += 1
        shares = [count / KEPT[digit] for count in looks.values()]
        assert len(looks) == 16
        assert max(shares) < 0.1
