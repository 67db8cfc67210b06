"""docs/dataset-format.md is complete: a reader written from it alone reads datasets; every name is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import BaseModel

from shardmill.infra.codecs.arrays import encode_array
from shardmill.infra.format import contract
from tests.documentation.blocks import ROOT
from tests.samples.images.masks import config as masked
from tests.samples.images.masks import make_masked
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.prepared import run
from tests.samples.sources.columns import with_columns

PAGE = (ROOT / "docs" / "dataset-format.md").read_text(encoding="utf-8")
READER = Path(__file__).with_name("independent_reader.py")


def read(dataset: Path) -> dict[str, Any]:
    """The counts of the independent reader for a dataset, from a process of its own."""
    command = [sys.executable, str(READER), str(dataset)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    counted: dict[str, Any] = json.loads(done.stdout)
    return counted


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs with a repeated, a broken and a hidden file."""
    folder = make_photos(
        tmp_path_factory.mktemp("source"), {"cat": 24, "späte Eule": 16}, height=24, width=32
    )
    return write(
        folder, {"cat/again.jpg": jpeg(9999), "cat/more.jpg": jpeg(9999), "cat/broken.jpg": b"no image"}
    )


@pytest.mark.parametrize(
    ("container", "encoding"), [("gzip", "jpeg"), ("none", "png"), ("none", "raw")], ids=str
)
def test_a_reader_written_from_the_page_reads_whole_datasets(
    photos: Path, tmp_path: Path, container: str, encoding: str
) -> None:
    run(
        photos,
        tmp_path,
        failure_budget=0.5,
        shards={"container": container, "num_shards": 2},
        image={"encoding": encoding},
    )
    counted = read(tmp_path / "d")
    assert counted["classes"] == {"cat": 25, "späte Eule": 16}
    assert sum(counted["splits"].values()) == 41
    assert counted["outcomes"] == {"record": 41, "duplicate": 1, "quarantined": 1}


def test_it_reads_labels_of_other_kinds_and_further_features(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"images": 30}, height=24, width=32)
    names = sorted(path.name for path in (source / "images").iterdir())
    labels = ("cat", "cat;späte Eule", "")
    rows = [
        f"{name},{labels[n % 3] or 'dog'},{n / 8},{n};{n + 1},{'é' * (n % 4)}" for n, name in enumerate(names)
    ]
    (source / "table.csv").write_text(
        "\n".join(["path,tags,price,counts,caption", *rows]) + "\n", encoding="utf-8"
    )
    table = {
        "file": "table.csv",
        "prefix": "images",
        "label": "tags",
        "label_separator": ";",
        "features": {
            "price": {"dtype": "float"},
            "counts": {"column": "counts", "separator": ";", "dtype": "int64"},
            "caption": "caption",
        },
    }
    run(source, tmp_path / "datasets", source={"kind": "table", **with_columns("table", table)})
    counted = read(tmp_path / "datasets" / "d")
    assert counted["classes"] == {"cat": 20, "dog": 10, "späte Eule": 10}
    assert counted["outcomes"] == {"record": 30, "filtered": 1}


def test_it_reads_masks(tmp_path: Path) -> None:
    run(make_masked(tmp_path / "source", 8), tmp_path / "datasets", **masked())
    counted = read(tmp_path / "datasets" / "d")
    assert counted["classes"]["ground"] == 8
    assert counted["outcomes"] == {"record": 8, "filtered": 8}


def test_the_reader_finds_damage(photos: Path, tmp_path: Path) -> None:
    run(photos, tmp_path, failure_budget=0.5, shards={"container": "none"})
    manifest = tmp_path / "d" / "manifests" / "000001.json"
    manifest.write_text(manifest.read_text().replace('"num_filtered": 0', '"num_filtered": 7'))
    with pytest.raises(AssertionError, match="AssertionError"):
        read(tmp_path / "d")


@pytest.mark.parametrize("model", contract.Stored.__subclasses__(), ids=lambda model: model.__name__)
def test_every_key_of_a_manifest_is_on_the_page(model: type[BaseModel]) -> None:
    assert [name for name in model.model_fields if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("schema", ["INDEX_SCHEMA", "INPUTS_SCHEMA", "NEAR_DUPLICATES_SCHEMA"])
def test_every_column_is_on_the_page(schema: str) -> None:
    columns: pa.Schema = getattr(contract, schema)
    assert [name for name in columns.names if f"`{name}`" not in PAGE] == []


def test_the_code_of_the_page_reads_arrays() -> None:
    (code,) = re.findall(r"```python\n(.*?def read_array.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    numbers = np.random.default_rng(0).integers(0, 256, (7, 5, 6, 4), np.uint8)
    for dtype in ("uint8", "uint16", "float32"):
        pixels = np.ascontiguousarray(numbers[..., : np.dtype(dtype).itemsize]).view(dtype)[..., 0]
        read = names["read_array"](encode_array(pixels), 7, 5, 6, dtype)
        assert (read.dtype, read.shape, read.tobytes()) == (dtype, (7, 5, 6), pixels.tobytes())


def test_the_page_names_the_format_version() -> None:
    first, second = contract.FORMAT_VERSIONS
    assert re.search(rf"`format_version` \| integer \| {first}, or {second} ", PAGE)
