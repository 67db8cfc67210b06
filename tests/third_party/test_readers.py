"""Other libraries read our shards and exports: the programs of the documentation, in their own environments.

The environments lie in .venv-readers and are made on first use (`make test-third-party`). A reader whose
environment cannot be made here is skipped, and says why.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.codecs import decode
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.exports.push import push
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.examples import ImageRecord, parse_example
from shardmill.infra.format.records import iter_records
from tests.environments import NotInstallable, environment
from tests.samples.datasets.published import coloured, publish
from tests.samples.images.photos import make_photos
from tests.samples.preparing.prepared import run as prepare
from tests.samples.stores.hub import TOKEN, serving

REPOSITORY = Path(__file__).parents[2]
PAGE, EXPORTS = (REPOSITORY / "docs" / name for name in ("reading-elsewhere.md", "export.md"))
PICTURES = coloured({"train": {"red fox": 60, "späte\nEule": 40}, "test": {"red fox": 4}})
# Decoders may round differently; what is another picture differs by far more.
_TOLERANCE = 3.0

# What each program leaves as `examples`: (id, label, the stored bytes or the decoded pixels).
_TAIL = """
import pickle
with open("examples.pickle", "wb") as out:
    pickle.dump([
        (bytes(i), label, (image.shape, image.tobytes()) if hasattr(image, "shape") else bytes(image))
        for i, label, image in examples
    ], out)
"""


def program(heading: str, page: Path) -> str:
    """The Python program of a section of a page."""
    section = page.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(found) == 1, f"{heading} has {len(found)} programs"
    return str(found[0])


def run(
    python: Path, heading: str, folder: Path, page: Path = PAGE, place: tuple[str, str] = ("", "")
) -> list[tuple[bytes, int, Any]]:
    """The examples that the program of a section finds, run in ``folder``; ``place`` is replaced in it."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [python, "-c", program(heading, page).replace(*place) + _TAIL],
        cwd=folder,
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    examples: list[tuple[bytes, int, Any]] = pickle.loads((folder / "examples.pickle").read_bytes())
    return examples


def stored(version: DatasetVersion) -> list[ImageRecord]:
    """The records of the train split, in stored order."""
    return [
        parse_example(payload)
        for shard in version.shards("train")
        for _, _, payload in iter_records(version.storage, shard.path, version.manifest.container)
    ]


def check(examples: list[tuple[bytes, int, Any]], records: list[ImageRecord]) -> None:
    """Every record once, with its label and its image; in any order."""
    by_id = {record.id.encode(): record for record in records}
    assert sorted(found for found, _, _ in examples) == sorted(by_id)
    for found, label, image in examples:
        record = by_id[found]
        assert label == record.label
        if isinstance(image, bytes):
            assert image == record.image
        else:
            shape, pixels = image
            ours = decode(record.image).pixels
            assert tuple(shape) == ours.shape
            theirs = np.frombuffer(pixels, np.uint8).reshape(shape)
            assert np.abs(theirs.astype(np.float64) - ours).mean() < _TOLERANCE


@pytest.mark.parametrize("container", ["gzip", "none"])
def test_stock_tensorflow_reads_the_shards_where_they_lie(tmp_path: Path, container: Any) -> None:
    version = publish(tmp_path / "datasets", PICTURES, name="photos", container=container)
    records = stored(version)
    examples = run(Path(sys.executable), "TensorFlow", tmp_path)
    check(examples, records)
    assert [found.decode() for found, _, _ in examples] == [record.id for record in records]


def interpreter(heading: str, packages: str) -> Path:
    """The interpreter of an environment; skips the test if it cannot be made here."""
    try:
        return environment(
            REPOSITORY / ".venv-readers", Path(__file__).parent / "requirements" / f"{packages}.txt"
        )
    except NotInstallable as why:
        pytest.skip(f"{heading} was NOT checked: {why}")


@pytest.mark.slow
@pytest.mark.parametrize("container", ["gzip", "none"])
@pytest.mark.parametrize(
    ("heading", "packages"),
    [
        ("The `tfrecord` package", "tfrecord"),
        ("Grain", "grain"),
        ("NVIDIA DALI", "dali"),
        ("TensorFlow Datasets", "tfds"),
    ],
)
def test_others_read_what_is_exported(tmp_path: Path, heading: str, packages: str, container: Any) -> None:
    python = interpreter(heading, packages)
    publish(tmp_path / "datasets", PICTURES, name="photos", container=container)
    version = Catalog(tmp_path / "datasets").open("photos")
    export(version, tmp_path / "photos-plain")
    check(run(python, heading, tmp_path), stored(version))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "form", "packages"),
    [
        ("WebDataset", "webdataset", "webdataset"),
        ("Parquet", "parquet", None),
        ("Hugging Face", "huggingface", "huggingface"),
        ("ArrayRecord", "array_record", "grain"),
    ],
)
def test_others_read_each_format(tmp_path: Path, heading: str, form: str, packages: str | None) -> None:
    python = Path(sys.executable) if packages is None else interpreter(heading, packages)
    version = publish(tmp_path / "datasets", PICTURES, name="photos")
    export(version, tmp_path / f"photos-{form}", form)
    check(run(python, heading, tmp_path, EXPORTS), stored(version))


@pytest.mark.slow
def test_datasets_reads_what_is_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = interpreter("Hugging Face", "huggingface")
    version = publish(tmp_path / "datasets", PICTURES, name="photos")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHARDMILL_PUSH_COPY", str(tmp_path / "made"))
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        push(version, "hf://datasets/me/photos")
        place = ("photos-huggingface", "me/photos")
        check(run(python, "Hugging Face", tmp_path, EXPORTS, place), stored(version))


@pytest.mark.slow
def test_keras_reads_the_folders(tmp_path: Path) -> None:
    version = publish(tmp_path / "datasets", coloured({"train": {"b": 3, "a": 2}}), name="photos")
    export(version, tmp_path / "photos-folder", "folder")
    tail = "\nprint(sorted(int(label) for _, label in photographs))"
    done = subprocess.run(
        [sys.executable, "-c", program("Folders of images", EXPORTS) + tail],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-2:] == ["['a', 'b']", "[0, 0, 1, 1, 1]"]


_CROISSANT = """
import json
import sys

import mlcroissant

dataset = mlcroissant.Dataset(sys.argv[1])  # raises where it is not valid
rows = [(row["records/id"].decode(), row["records/split"].decode(), row["records/label"])
        for row in dataset.records("records")]
classes = [row["classes/name"] for row in dataset.records("classes")]
terms = [dataset.metadata.license, dataset.metadata.cite_as]
errors = sorted(dataset.metadata.ctx.issues.errors)
print(json.dumps({"errors": errors, "rows": rows, "classes": classes, "terms": terms}))
"""


@pytest.mark.slow
def test_mlcroissant_accepts_the_description_and_reads_the_indexes(tmp_path: Path) -> None:
    python = interpreter("mlcroissant", "mlcroissant")
    version = publish(tmp_path / "datasets", PICTURES, name="photos")
    path = tmp_path / "datasets" / "photos" / "croissant-000001.json"
    done = subprocess.run(
        [python, "-c", _CROISSANT, path], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == []
    assert found["classes"] == ["red fox", "späte\nEule"]
    table = version.scan(["id", "split", "label"]).to_table().to_pylist()
    assert sorted(map(tuple, found["rows"])) == sorted(tuple(row.values()) for row in table)


@pytest.mark.slow
def test_mlcroissant_reads_the_licence_that_a_table_gives(tmp_path: Path) -> None:
    python = interpreter("mlcroissant", "mlcroissant")
    source = make_photos(tmp_path / "photos", {"fox": 8})
    names = sorted(path.name for path in (source / "fox").iterdir())
    lines = [f"fox/{name},fox,https://creativecommons.org/licenses/by/4.0/,Jane Doe" for name in names]
    (source / "images.csv").write_text("\n".join(["path,label,licence,attribution", *lines]) + "\n")
    settings = {"table": {"file": "images.csv"}, "columns": {"features": ["licence", "attribution"]}}
    prepare(source, tmp_path / "root", source={"kind": "table", **settings})
    path = tmp_path / "root" / "d" / "croissant-000001.json"
    done = subprocess.run(
        [python, "-c", _CROISSANT, path], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == []
    assert found["terms"] == [["https://creativecommons.org/licenses/by/4.0/"], "Jane Doe"]
