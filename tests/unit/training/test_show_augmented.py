"""The picture of augmentation shows what the pipeline of a training run makes of the same examples."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ConfigError, CorruptDataError, NotFoundError, StorageError, UsageError
from shardmill.training import show_augmented
from shardmill.training.augment.parameters import draw_batch_parameters
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.split_records import EncodedImage
from shardmill.training.reading.shard_reader import ShardReader
from shardmill.training.results.pictures.grid import Cell, grid_picture
from tests.samples.datasets.published import coloured, publish, publish_patterned
from tests.samples.images.drawn_objects import draw_objects, objects_config
from tests.samples.images.masks import IGNORED, make_masked
from tests.samples.images.masks import config as masks_config
from tests.samples.preparing.prepared import run as prepare

CONFIG = {"data": {"image_size": 24, "global_batch_size": 8, "seed": 3}}
JITTER = {"vertical_flip": True, "color_jitter": {"hue": 0.3}, "erasing": {"probability": 0.5}}
MIXING = {"randaugment": {"num_ops": 1}, "mixup": 0.4, "cutmix": 1.0}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    publish(folder, coloured({"train": {"red": 9, "<b>\n": 8}}), name="set")
    publish(folder, coloured({"train": {"red": 1, "green": 2}}), name="few")
    publish(folder, coloured({"test": {"red": 3}}), name="untrained")
    return folder


@pytest.mark.parametrize("augment", [{}, JITTER, MIXING], ids=["plain", "jitter", "mixing"])
def test_the_cells_are_the_examples_of_the_training_pipeline(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, augment: dict[str, object]
) -> None:
    from shardmill.training.order.from_settings import order_from_settings
    from shardmill.training.tensorflow.augment_batches import BatchAugment
    from shardmill.training.tensorflow.data.augmented_batches import WithBatchParameters
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline

    config = TrainConfig.model_validate({**CONFIG, "augment": augment})
    shown: list[list[list[Cell]]] = []

    def remember(title: str, subtitle: str, columns: list[str], rows: list[list[Cell]]) -> Image.Image:
        shown.append(rows)
        return grid_picture(title, subtitle, columns, rows)

    monkeypatch.setattr(show_augmented, "grid_picture", remember)
    result = show_augmented.show_augmented("set", config, root=root, out=tmp_path / "out.png")
    assert result["num_examples"] == len(shown[0]) == 6
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.format == "PNG"
        assert picture.size[0] > 7 * 160

    dataset = open_dataset("set", root=root)
    reader = dataset.reader("train")
    order = order_from_settings(config.data, reader.table, dataset.classes)
    pipeline: Any = IndexedPipeline(reader, order, ExampleSpec.of_settings(config))
    if config.augment.of_batches:
        pipeline = WithBatchParameters(pipeline)
    batch = next(iter(pipeline.dataset(0, 1)))
    images = BatchAugment(config.augment)(batch["images"], batch.get("parameters", {}))
    for row in range(6):
        assert np.array_equal(shown[0][row][1].pixels, images[row]), "the first epoch is the run's own"
        assert shown[0][row][0].caption == (
            dataset.classes[int(batch["labels"][row])],
            "52 by 40 pixels",
        )


@pytest.fixture(scope="module")
def of_other_labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    publish_patterned(folder / "several", {"train": 8}, several=True, name="d")
    publish_patterned(folder / "numbers", {"train": 8}, several=False, name="d")
    publish(folder / "none", coloured({"train": {"red": 8}}), classes=[], name="d")
    prepare(
        draw_objects(folder / "street", {"train": 8}, seed=3), folder / "boxes", **objects_config(["train"])
    )
    prepare(make_masked(folder / "photos", 10), folder / "masks", **masks_config())
    return folder


def words_of(dataset: Dataset, row: dict[str, Any], mask: bytes | None) -> str:
    """The label of a record, from its row of the index and from its mask."""
    classes = dataset.classes
    if mask is not None:
        with Image.open(io.BytesIO(mask)) as picture:
            counts = Counter(number for number in np.asarray(picture).ravel().tolist() if number != IGNORED)
        total = counts.total()
        return ", ".join(f"{classes[number]} {count / total:.0%}" for number, count in counts.most_common())
    if "objects/label" in row:
        found = sorted(Counter(row["objects/label"]).items())
        return ", ".join(f"{n} {classes[kind]}" if n > 1 else classes[kind] for kind, n in found) or "none"
    if "labels" in row:
        return ", ".join(classes[label] for label in row["labels"]) or "none"
    if "targets" in row:
        brightness, redness = row["targets"]
        return f"brightness {brightness:.4g}, redness {redness:.4g}"
    return "no labels"


@pytest.mark.parametrize("labels", ["several", "numbers", "none", "boxes", "masks"])
def test_labels_of_every_kind_are_named(
    of_other_labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: str
) -> None:
    plain = {"random_resized_crop": False, "horizontal_flip": False}
    config = TrainConfig.model_validate({**CONFIG, "augment": plain})
    shown: list[list[Cell]] = []

    def remember(_title: str, _subtitle: str, _columns: list[str], rows: list[list[Cell]]) -> Image.Image:
        shown.extend(rows)
        return grid_picture("", "", [""], rows)

    monkeypatch.setattr(show_augmented, "grid_picture", remember)
    show_augmented.show_augmented("d", config, root=of_other_labels / labels, out=tmp_path / "out.png")
    dataset = open_dataset("d", of_other_labels / labels)
    reader = dataset.reader("train")
    shards = dataset.version.shards("train")
    rows = [row for shard in shards for row in dataset.version.index(shard).to_pylist()]
    known = {
        (words_of(dataset, row, stored.mask), f"{row['width']} by {row['height']} pixels")
        for row, stored in zip(rows, reader.read_images(np.arange(len(rows))), strict=True)
    }
    assert len(shown) == 6
    for stored, *trained in shown:
        assert stored.caption in known
        if labels != "masks":  # pixels of a smaller mask have other shares
            assert {cell.caption for cell in trained} == {stored.caption[:1]}


def test_several_labels_are_mixed_and_boxes_are_not(of_other_labels: Path, tmp_path: Path) -> None:
    config, out = TrainConfig.model_validate({**CONFIG, "augment": {"mixup": 1.0}}), tmp_path / "out.png"
    result = show_augmented.show_augmented("d", config, root=of_other_labels / "several", out=out)
    assert result["num_examples"] == 6
    with pytest.raises(ConfigError, match=r"augment.mixup = 1.0 has no meaning"):
        show_augmented.show_augmented("d", config, root=of_other_labels / "boxes", out=out)


def test_captions_say_how_labels_are_mixed(root: Path) -> None:
    settings = AugmentSettings.model_validate(MIXING)
    draws = draw_batch_parameters(settings, 0, 0, np.arange(4), 24)
    draws["Mixing"]["own_share"] = np.array([0.25, 1.0, 0.5, 0.75], np.float32)
    draws["RandAugment"]["ops"] = np.array([[3], [0], [8], [2]], np.int32)
    captions = [show_augmented.caption(settings, ["a", "b", "c", "c"], draws, row) for row in range(4)]
    assert captions == [("a 25%, b 75%", "rotate"), ("b", "identity"), ("c", "brightness"), ("c", "equalize")]
    assert show_augmented.caption(settings, ["a, b", "c"], draws, 0)[0] == "(a, b) 25%, c 75%"


def test_settings_are_described_as_they_are_written() -> None:
    plain = "augment: horizontal_flip = true, random_resized_crop = true"
    assert show_augmented.described(AugmentSettings()) == plain
    off = AugmentSettings.model_validate({"random_resized_crop": False, "horizontal_flip": False, **MIXING})
    wanted = "augment: cutmix = 1.0, mixup = 0.4, randaugment = { num_ops = 1 }"
    assert show_augmented.described(off) == wanted
    nothing = AugmentSettings(random_resized_crop=False, horizontal_flip=False)
    assert show_augmented.described(nothing) == "augment: nothing; the central square"
    assert show_augmented.described(nothing, "stretch").endswith("the whole image (fit = stretch)")


def test_few_examples_and_odd_names(root: Path, tmp_path: Path) -> None:
    config = TrainConfig.model_validate({**CONFIG, "augment": {"mixup": 1.0}})
    result = show_augmented.show_augmented("few", config, root=root, out=tmp_path / "few.jpg")
    assert result["num_examples"] == 4, "three, and one that fills the last pair"
    long = Cell(np.zeros((30, 4, 3), np.uint8), ("\x1b[2J \u202e" + "wide " * 40, "中文"))
    assert grid_picture("t", "s " * 400, ["stored"], [[long]]).size[1] > 200


def test_what_is_wrong_is_said(root: Path, tmp_path: Path) -> None:
    config = TrainConfig.model_validate(CONFIG)
    with pytest.raises(UsageError, match="no suffix of a picture format"):
        show_augmented.show_augmented("set", config, root=root, out=tmp_path / "out.txt")
    with pytest.raises(StorageError, match=r"cannot write .*missing.*No such file"):
        show_augmented.show_augmented("set", config, root=root, out=tmp_path / "missing" / "out.png")
    with pytest.raises(NotFoundError, match="no split 'train'"):
        show_augmented.show_augmented("untrained", config, root=root, out=tmp_path / "out.png")
    odd = TrainConfig.model_validate({"data": {"image_size": 24, "global_batch_size": 5}, "augment": MIXING})
    with pytest.raises(ConfigError, match="pairs"):
        show_augmented.show_augmented("set", odd, root=root, out=tmp_path / "out.png")


def test_a_damaged_record_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = ShardReader.read_images

    def broken(self: ShardReader, ordinals: np.ndarray) -> list[EncodedImage]:
        return [stored._replace(image=b"\xff\xd8 nothing") for stored in read(self, ordinals)]

    monkeypatch.setattr(ShardReader, "read_images", broken)
    with pytest.raises(CorruptDataError, match=r"record \w+ at byte \d+ of data/.*cannot be decoded"):
        show_augmented.show_augmented(
            "set", TrainConfig.model_validate(CONFIG), root=root, out=tmp_path / "out.png"
        )


def test_the_command(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.webp"
    arguments = ["set", "--root", str(root), "--out", str(out), "--set", "data.image_size=16", "--json"]
    assert show_augmented.main(arguments) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["augmented"] == str(out)
    assert out.stat().st_size > 1_000
