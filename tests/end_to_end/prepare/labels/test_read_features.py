"""Labels of every kind and features, read by TensorFlow, numpy and PyTorch, and by the printed parser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.examples import parser_code
from shardmill.training.config import TrainConfig
from shardmill.training.config.data import DataSettings
from shardmill.training.reading.records.columns import Padded
from shardmill.training.run.files.folds import divide_train_split
from shardmill.training.train import train_dataset
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import run
from tests.samples.sources.columns import with_columns
from tests.samples.training.forms_elsewhere import check_forms

COUNT = 12
MISSING = -(1 << 63)


def row(number: int) -> dict[str, Any]:
    return {
        "path": f"{number:02}.jpg",
        "tags": [name for name, every in (("cat", 2), ("dog", 3)) if number % every == 0],
        "age": number / 4,
        "n": None if number == 5 else number,
        "caption": f"ä{number}",
        "words": [f"w{k}" for k in range(number % 3)],
        "box": [number, 1.5],
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The datasets "multi", "targets" and "none" of the same photographs, all in train."""
    place = tmp_path_factory.mktemp("read")
    source = write(place / "photos", {f"{n:02}.jpg": jpeg(n + 1) for n in range(COUNT)})
    rows = [row(number) | {"split": "train"} for number in range(COUNT)]
    (source / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    features = {"n": {}, "caption": {}, "words": {}, "box": {"length": 2, "dtype": "float"}}
    base = {"file": "t.jsonl", "features": features, "split": "split"}
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "multi": ({"labels": "multi"}, {"label": "tags"}),
        "targets": ({}, {"target_columns": ["age"]}),
        "none": ({"labels": "none"}, {}),
    }
    for name, (labels, columns) in kinds.items():
        config = {
            "source": {"kind": "table", **labels, **with_columns("table", base | columns)},
            "image": {"size": 16},
        }
        run(source, place / name, **config, groups={"near_duplicates": False})
    return place


def opened(root: Path, kind: str, **reading: Any) -> Dataset:
    return open_dataset("d", root / kind, **reading)


def numbers(dataset: Dataset) -> list[int]:
    """The number in the file name of each record of train, in stored order."""
    uris = dataset.to_arrow(["source_uri"]).to_table()["source_uri"].to_pylist()
    return [int(uri[:2]) for uri in uris]


def many_hot(rows: list[dict[str, Any]]) -> list[list[float]]:
    return [[float(name in one["tags"]) for name in ("cat", "dog")] for one in rows]


PLAIN: dict[str, Any] = {"batch_size": 5, "image_size": 16, "training": False}
ALL = ["n", "caption", "words", "box"]


def test_numpy(root: Path) -> None:
    dataset = opened(root, "multi")
    found = numbers(dataset)
    batches = list(dataset.batches("train", features=ALL, **PLAIN))
    assert [len(batch.labels) for batch in batches] == [5, 5, 2]
    first, rows = batches[0], [row(number) for number in found[:5]]
    assert first.labels.dtype == np.float32
    assert first.labels.tolist() == many_hot(rows)
    assert first.features["n"].tolist() == [MISSING if one["n"] is None else one["n"] for one in rows]
    assert first.features["caption"].tolist() == [one["caption"] for one in rows]
    assert first.features["box"].tolist() == [one["box"] for one in rows]
    words = first.features["words"]
    assert isinstance(words, Padded)
    assert words.lengths.tolist() == [len(one["words"]) for one in rows]
    assert [line[: len(one["words"])] for line, one in zip(words.values.tolist(), rows, strict=True)] == [
        one["words"] for one in rows
    ]
    targets = next(iter(opened(root, "targets").batches("train", **PLAIN)))
    assert targets.labels.tolist() == [[number / 4] for number in numbers(opened(root, "targets"))[:5]]
    assert next(iter(opened(root, "none").batches("train", **PLAIN))).labels.tolist() == [-1] * 5


def test_tensorflow(root: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    for decoder in ("auto", "tensorflow"):
        dataset = opened(root, "multi", decoder=decoder)
        found = numbers(dataset)
        pairs = dataset.tf("train", features=ALL, **PLAIN)
        assert isinstance(pairs.element_spec[0]["words"], tf.RaggedTensorSpec)
        *_, (inputs, labels) = pairs
        rows = [row(number) for number in found[10:]]
        assert labels.numpy().tolist() == many_hot(rows)
        assert inputs["image"].shape == (2, 16, 16, 3)
        assert inputs["caption"].numpy().tolist() == [one["caption"].encode() for one in rows]
        assert inputs["words"].to_list() == [[word.encode() for word in one["words"]] for one in rows]
        assert inputs["box"].numpy().tolist() == [one["box"] for one in rows]
    padded = next(iter(dataset.tf("train", features=["words"], ragged=False, **PLAIN)))[0]["words"]
    assert padded.shape == (5, 2)
    (images, ages, weights), *_ = opened(root, "targets").tf("train", **PLAIN | {"last_batch": "pad"})
    assert (images.shape[0], ages.shape, weights.shape) == (5, (5, 1), (5,))
    augmented = next(iter(opened(root, "targets").tf("train", batch_size=4, image_size=16)))
    assert augmented[1].shape == (4, 1)


def test_jax_and_grain(root: Path) -> None:
    whole = PLAIN | {"image_size": None}
    check_forms(
        *((str(root / kind), "d", "train", PLAIN) for kind in ("targets", "none")),
        *((str(root / "multi"), "d", "train", {"features": ALL, **options}) for options in (whole, PLAIN)),
    )


@pytest.mark.parametrize("image_size", [16, None])
def test_torch(root: Path, image_size: int | None) -> None:
    torch = pytest.importorskip("torch")
    dataset = opened(root, "multi")
    loader = dataset.torch(
        "train", features=ALL, num_workers=0, num_epochs=1, **PLAIN | {"image_size": image_size}
    )
    batch = next(iter(loader))
    rows = [row(number) for number in numbers(dataset)[:5]]
    assert batch.labels.dtype == torch.float32
    assert batch.labels.tolist() == many_hot(rows)
    assert batch.features["n"].tolist() == [MISSING if one["n"] is None else one["n"] for one in rows]
    assert batch.features["caption"] == [one["caption"] for one in rows]
    assert batch.features["words"] == [one["words"] for one in rows]
    assert batch.features["box"].tolist() == [one["box"] for one in rows]


@pytest.mark.parametrize("kind", ["multi", "targets", "none"])
def test_the_printed_parser_reads_the_records(root: Path, kind: str) -> None:
    pytest.importorskip("tensorflow")
    version = Catalog(str(root / kind)).open("d")
    code: dict[str, Any] = {}
    exec(compile(parser_code(version.manifest), "parser.py", "exec"), code)
    dataset = opened(root, kind)
    found = numbers(dataset)
    files = [f"{root / kind}/d/{shard.path}" for shard in version.manifest.shards]
    for parsed, number in zip(code["read"](files), found, strict=True):
        wanted = row(number)
        assert parsed["n"].numpy() == (MISSING if wanted["n"] is None else wanted["n"])
        assert parsed["words"].numpy().tolist() == [word.encode() for word in wanted["words"]]
        assert parsed["box"].numpy().tolist() == wanted["box"]
        assert parsed["height"].numpy() == 16
        if kind == "multi":
            assert [dataset.classes[at] for at in parsed["labels"].numpy()] == wanted["tags"]
        if kind == "targets":
            assert parsed["targets"].numpy().tolist() == [wanted["age"]]


def test_views_and_exports_know_no_single_class(root: Path, tmp_path: Path) -> None:
    version = Catalog(str(root / "multi")).open("d")
    few = version.query("n < 5")
    assert few.count_classes("train") == {"cat": 3, "dog": 2}
    with pytest.raises(UsageError, match="the version has no classes"):
        version.query("label_name == 'cat'")
    export(few, str(tmp_path / "parquet"), "parquet")
    table = pa.concat_tables(map(pq.read_table, sorted((tmp_path / "parquet").rglob("*.parquet"))))
    assert table["label"].null_count == table["label_name"].null_count == 5
    assert sorted(map(len, table["labels"].to_pylist())) == sorted(len(row(n)["tags"]) for n in range(5))
    export(few, str(tmp_path / "tfds"), "tfds")
    described = json.loads((tmp_path / "tfds" / "features.json").read_text())["featuresDict"]["features"]
    assert "classLabel" in described["labels"]["sequence"]["feature"]
    assert (tmp_path / "tfds" / "labels.labels.txt").read_text().split() == version.manifest.classes
    assert "label" not in described


@pytest.mark.parametrize("balance", ["natural", "repeat-factor"])
def test_records_of_several_labels_are_divided_into_folds(
    root: Path, balance: Literal["natural", "repeat-factor"]
) -> None:
    reader, left_out = opened(root, "multi").reader("train"), []
    every = set(range(len(reader.table)))
    for fold in (1, 2):
        settings = DataSettings(folds=2, left_out_fold=fold, balance=balance, global_batch_size=2)
        divided = divide_train_split(settings, reader, ["cat", "dog"])
        assert divided.left_out is not None
        left_out += divided.left_out.tolist()
        steps = range(divided.order.steps_per_epoch)
        learned = {int(one) for step in steps for one in divided.order.step(0, step).ordinals}
        rest = every - set(divided.left_out.tolist())
        assert learned == rest if balance == "natural" else learned <= rest
    assert sorted(left_out) == sorted(every)


def test_training_without_labels_is_refused_in_words(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="d@1 has no labels: there is nothing that a model could learn"):
        train_dataset("d", TrainConfig(), root=root / "none", runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_needs_classes_is_refused(root: Path) -> None:
    dataset = opened(root, "multi")
    with pytest.raises(ConfigError, match=r"^balance = 'uniform' needs one class an image"):
        dataset.batches("train", balance="uniform", batch_size=4)
    with pytest.raises(UsageError, match="no feature 'capton'"):
        dataset.batches("train", features=["capton"], batch_size=4)
