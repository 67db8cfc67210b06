"""Other libraries read exports of every kind of labels, with further features, objects and masks."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.version import DatasetVersion
from tests.environments import NotInstallable, environment
from tests.samples.images.drawn_objects import draw_objects, objects_config
from tests.samples.images.masks import config as masks_config
from tests.samples.images.masks import make_masked
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import run
from tests.samples.sources.columns import with_columns

REPOSITORY = Path(__file__).parents[2]
PACKAGES = {
    "tfds": "tfds", "huggingface": "huggingface", "webdataset": "webdataset", "array_record": "grain",
    "parquet": None,
}  # fmt: skip
COLUMNS = {
    "several labels": ["labels"],
    "numbers": ["targets"],
    "features": ["caption", "sizes_cm", "count"],
    "objects": ["objects/bbox", "objects/label", "objects/is_crowd"],
    "masks": ["mask"],
}
_ROWS = [
    ("cat;dog", "1.5", "größe 1", "1.25 2.5", "7"), ("dog", "-3", "a hat", "3 4", "8"),
    ("cat", "0.25", "two hats", "5 6", "9"), ("hat;cat", "8", "no hat", "7 8", "10"),
]  # fmt: skip


def _of_a_table(folder: Path, root: Path, **table: Any) -> DatasetVersion:
    """Publish 12 images with the columns of a table."""
    lines = ["path,tags,age,caption,sizes,count,split"]
    for number in range(12):
        write(folder, {f"{number}.jpg": jpeg(number)})
        lines.append(",".join((f"{number}.jpg", *_ROWS[number % 4], "train" if number < 9 else "test")))
    write(folder, {"images.csv": "\n".join(lines).encode()})
    table = {"file": "images.csv", "split": "split", **table}
    labels = {"labels": "none"} if "features" in table else {}
    run(folder, root, source={"kind": "table", **with_columns("table", table), **labels}, image={"size": 16})
    return Catalog(root).open("d")


def published(kind: str, folder: Path, root: Path) -> DatasetVersion:
    """Publish a dataset with labels of a kind."""
    if kind == "several labels":
        return _of_a_table(folder, root, label="tags", label_separator=";")
    if kind == "numbers":
        return _of_a_table(folder, root, target_columns=["age"])
    if kind == "features":
        sizes = {"column": "sizes", "separator": " ", "dtype": "float", "length": 2}
        return _of_a_table(
            folder, root, features={"caption": {}, "sizes_cm": sizes, "count": {"dtype": "int64"}}
        )
    if kind == "objects":
        draw_objects(folder, {"train": 8, "test": 3})
        run(folder, root, **objects_config(["train", "test"]))
    else:
        run(make_masked(folder, 12), root, **masks_config())
    return Catalog(root).open("d")


def stored(version: DatasetVersion, columns: list[str]) -> dict[str, dict[str, list[Any]]]:
    """Id -> columns of the index of the train split; a feature of one value as a list of one."""
    rows = version.scan(["id", "split", *columns]).to_table().to_pylist()
    return {
        row["id"]: {name: row[name] if isinstance(row[name], list) else [row[name]] for name in columns}
        for row in rows
        if row["split"] == "train"
    }


@pytest.mark.slow
@pytest.mark.parametrize("form", PACKAGES)
@pytest.mark.parametrize("kind", COLUMNS)
def test_others_read_labels_of_each_kind(kind: str, form: str, tmp_path: Path) -> None:
    if (kind, form) == ("masks", "tfds"):
        pytest.skip("TensorFlow Datasets is refused for masks: tests/end_to_end/prepare/labels/test_masks.py")
    packages = PACKAGES[form]
    try:
        requirements = Path(__file__).parent / "requirements" / f"{packages}.txt"
        python = environment(REPOSITORY / ".venv-readers", requirements) if packages else Path(sys.executable)
    except NotInstallable as why:
        pytest.skip(f"{form} was NOT checked: {why}")
    version = published(kind, tmp_path / "source", tmp_path / "root")
    out = tmp_path / "out"
    export(version, out, form)
    columns = COLUMNS[kind]
    script = Path(__file__).with_name("read_columns.py")
    done = subprocess.run(
        [python, script, form, out, *columns],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = pickle.loads(Path(f"{out}.pickle").read_bytes())
    if kind == "masks":
        _check_masks(version, found)
    else:
        assert found == stored(version, columns)


def _check_masks(version: DatasetVersion, found: dict[str, dict[str, Any]]) -> None:
    """Each mask shows the classes of its record, on as many pixels."""
    wanted = stored(version, ["labels", "mask/pixels", "height", "width"])
    assert found.keys() == wanted.keys()
    for record, row in wanted.items():
        shape, pixels = found[record]["mask"]
        assert [shape[0], shape[1]] == [*row["height"], *row["width"]]
        assert [pixels.count(label) for label in row["labels"]] == row["mask/pixels"]
