"""The ``tf.data`` pipeline: the order's records with the right pixels, in Keras too, and damage by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.codecs import decode
from shardmill.infra.errors import ConfigError, CorruptDataError, NotFoundError, UsageError
from shardmill.training.augment.parameters import draw_parameters
from shardmill.training.config import AugmentSettings
from shardmill.training.config.data import DataSettings, ImageOptions, OrderOptions
from shardmill.training.config.reading import Decoder, Mode, ReadingOptions, ReadingSettings
from shardmill.training.reading import ShardReader
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.split_records import EncodedImage
from tests.samples.datasets.published import Picture, coloured, publish
from tests.samples.training.drawn import drawn_for_images

COUNTS = {"train": {"a": 17, "b": 9}, "test": {"a": 5, "b": 3}}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured(COUNTS, size=(60, 80)), name="set")
    return open_dataset("set@1", root=root)


def pipeline_of(dataset: Dataset, batch_size: int = 8, **options: Any) -> Any:
    from shardmill.training.order import TrainingOrder
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline

    reader = dataset.reader("train")
    order = TrainingOrder(reader.table.label, seed=3, global_batch_size=batch_size)
    return IndexedPipeline(reader, order, ExampleSpec(image_size=24, **options))


def test_batches_are_the_steps_of_the_order(dataset: Dataset) -> None:
    pipeline = pipeline_of(dataset, augment=AugmentSettings())
    steps = pipeline.order.steps_per_epoch
    batches = list(pipeline.dataset(0, 2 * steps).as_numpy_iterator())
    assert len(batches) == 2 * steps == 8
    for number, batch in enumerate(batches):
        plan = pipeline.order.step(*divmod(number, steps))
        assert batch["ordinals"].tolist() == plan.ordinals.tolist()
        assert batch["weights"].tolist() == plan.weights.tolist()
        assert batch["labels"].tolist() == pipeline.reader.table.label[plan.ordinals].tolist()
        assert batch["images"].shape == (8, 24, 24, 3)
        assert batch["images"].dtype == np.uint8


def test_a_pipeline_begun_anywhere_goes_on_like_the_unbroken_one(dataset: Dataset) -> None:
    pipeline = pipeline_of(dataset, augment=AugmentSettings())
    whole = list(pipeline.dataset(0, 8).as_numpy_iterator())
    for start in (1, 4, 7):
        rest = list(pipeline.dataset(start, 8).as_numpy_iterator())
        assert len(rest) == 8 - start
        for left, right in zip(rest, whole[start:], strict=True):
            assert all(np.array_equal(left[key], right[key]) for key in left)


def test_replica_batches_are_the_slices_of_the_global_batch(dataset: Dataset) -> None:
    pipeline = pipeline_of(dataset, augment=AugmentSettings())
    whole = next(pipeline.dataset(2, 3).as_numpy_iterator())
    parts = list(pipeline.dataset(2, 3, batch_size=2).as_numpy_iterator())
    assert len(parts) == 4
    assert np.array_equal(np.concatenate([part["images"] for part in parts]), whole["images"])


@pytest.mark.parametrize("decoder", ["turbo", "tensorflow"])
def test_pixels_are_those_of_the_window(dataset: Dataset, decoder: Decoder) -> None:
    """Against OpenCV's resize of the same window, decoded by another library."""
    settings = AugmentSettings(scale=(0.5, 0.6))
    pipeline = pipeline_of(dataset, augment=settings, reading=ReadingSettings(decoder=decoder))
    batch = next(pipeline.dataset(0, 1).as_numpy_iterator())
    plan = pipeline.order.step(0, 0)
    table = pipeline.reader.table
    sides = table.height[plan.ordinals], table.width[plan.ordinals]
    drawn = draw_parameters(settings, 3, 0, plan.positions, *sides, 24)
    cut, flipped = drawn.windows, drawn_for_images(drawn).left_right
    for row, record in enumerate(pipeline.reader.read_many(plan.ordinals)):
        top, left, height, width = cut[row]
        pixels = decode(record.image).pixels[top : top + height, left : left + width]
        if max(height, width) > 1.5 * 24:  # what shrinks more than a little is averaged
            pixels = cv2.resize(pixels, (min(width, 24), min(height, 24)), interpolation=cv2.INTER_AREA)
        wanted = cv2.resize(pixels, (24, 24), interpolation=cv2.INTER_LINEAR).astype(int)
        if flipped[row]:
            wanted = wanted[:, ::-1]
        assert np.abs(batch["images"][row] - wanted).mean() < 1.5


def test_shrinking_does_not_alias(tmp_path: Path) -> None:
    """Stripes a pixel wide become grey; a resize without a filter would leave a moiré of black and white."""
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[:, ::2] = 255
    publish(tmp_path, [Picture("test", "a", stripes)], name="stripes", quality=100)
    for size in (60, 100):
        images, _ = next(
            iter(open_dataset("stripes", root=tmp_path).tf("test", image_size=size, batch_size=1))
        )
        assert np.abs(images.numpy().astype(int) - 127).max() < 40, size


def test_plain_datasets_for_training_and_evaluation(dataset: Dataset) -> None:
    train = dataset.tf("train", batch_size=8, image_size=16, epochs=2)
    assert [labels.shape[0] for _, labels in train] == [8] * 6
    assert len(train) == 6
    test = dataset.tf("test", batch_size=3, image_size=16)
    assert [labels.shape[0] for _, labels in test] == [3, 3, 2]
    assert np.concatenate([labels for _, labels in test]).tolist() == dataset.table("test").label.tolist()
    padded = dataset.tf("test", batch_size=3, image_size=16, last_batch="pad")
    # 8 records in 9 rows: the mean over the rows of the pass is the mean over its records.
    weight = 9 / 8
    assert [weights.numpy().tolist() for *_, weights in padded] == [
        [weight] * 3,
        [weight] * 3,
        [weight] * 2 + [0],
    ]


def orders_of(passes: Any, count: int) -> list[list[tuple[int, int]]]:
    """(label, sum of its pixels) of each example of several iterations."""
    return [
        [
            (int(label), int(image.astype(int).sum()))
            for images, labels, *_ in passes.as_numpy_iterator()
            for image, label in zip(images, labels, strict=True)
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "reading", [{}, {"mode": "streaming"}, {"decoder": "tensorflow"}, {"cache": "memory"}]
)
def test_each_iteration_is_the_next_epoch(dataset: Dataset, reading: dict[str, Any]) -> None:
    opened = Dataset(dataset.version, ReadingSettings(**reading))
    options: dict[str, Any] = {"batch_size": 13, "image_size": 16, "augment": AugmentSettings(mixup=0.0)}
    epochs = [orders_of(opened.tf("train", epoch=epoch, **options), 1)[0] for epoch in range(4)]
    assert all(sorted(label for label, _ in epoch) == [0] * 17 + [1] * 9 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    train = opened.tf("train", **options)
    assert len(train) == 2
    assert orders_of(train, 2) == epochs[:2]
    assert orders_of(train.repeat(2), 1) == [epochs[2] + epochs[3]]
    assert orders_of(opened.tf("train", epoch=2, **options), 2) == [epochs[2]] * 2
    assert orders_of(opened.tf("train", first_epoch=1, epochs=2, **options), 1) == [epochs[1] + epochs[2]]


def test_iterations_begun_elsewhere_count_too(dataset: Dataset) -> None:
    import tensorflow as tf

    train = dataset.tf("train", batch_size=13, image_size=16)
    epochs = [
        orders_of(dataset.tf("train", batch_size=13, image_size=16, epoch=epoch), 1)[0] for epoch in range(5)
    ]
    firsts = [epoch[0][1] for epoch in epochs]

    @tf.function  # type: ignore[untyped-decorator]
    def first_of_a_loop() -> Any:
        found = tf.constant(-1)
        for images, _ in train:
            if found < 0:
                found = tf.reduce_sum(tf.cast(images[0], tf.int32))
        return found

    assert [int(first_of_a_loop()) for _ in range(2)] == firsts[:2]
    one, two = iter(train), iter(train)
    seen = [int(next(each)[0][0].numpy().astype(int).sum()) for each in (one, two)]
    assert seen == firsts[2:4]
    looked_at = orders_of(train.take(1), 1)[0]
    assert looked_at == epochs[4][:13]


def test_a_saved_iterator_goes_on_in_its_epoch(dataset: Dataset, tmp_path: Path) -> None:
    import tensorflow as tf

    train = dataset.tf("train", batch_size=4, image_size=16)
    assert len(list(train)) == 6, "epoch 0"
    iterator = iter(train)
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "position"))
    rest = [labels.numpy().tolist() for _, labels in iterator]
    restored = iter(dataset.tf("train", batch_size=4, image_size=16))
    tf.train.Checkpoint(iterator=restored).restore(saved)
    assert [labels.numpy().tolist() for _, labels in restored] == rest
    assert len(rest) == 5


def test_a_partial_last_batch_reads_each_record_once(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = ShardReader.read_images

    def read_images(self: ShardReader, ordinals: np.ndarray) -> list[EncodedImage]:
        read.extend(ordinals.tolist())
        return whole(self, ordinals)

    monkeypatch.setattr(ShardReader, "read_images", read_images)
    batches = list(dataset.tf("test", batch_size=3, image_size=16))
    assert [labels.shape[0] for _, labels in batches] == [3, 3, 2]
    assert sorted(read) == [0, 0, 1, 2, 3, 4, 5, 6, 7], "0 once more, as the padding of the last batch"


@pytest.mark.parametrize("mode", ["indexed", "streaming"])
@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
def test_class_weights_come_with_each_batch(dataset: Dataset, last_batch: str, mode: Mode) -> None:
    dataset = Dataset(dataset.version, ReadingSettings(mode=mode))
    weighing = {"class_weights": {dataset.classes[0]: 3.0}, "last_batch": last_batch, "training": True}
    batches = list(dataset.tf("train", batch_size=7, image_size=16, **weighing))  # type: ignore[arg-type]
    of_class = np.array([3.0] + [1.0] * (len(dataset.classes) - 1))
    for _, labels, weights in batches:
        real = weights.numpy() > 0
        each = of_class[labels.numpy()[real]]
        # Averaged over all rows, also those of padding, as Keras does.
        assert weights.numpy()[real] == pytest.approx(each / each.sum() * len(labels), rel=1e-5)
    assert sum(np.count_nonzero(weights > 0) for *_, weights in batches) == (
        len(dataset.table("train")) // 7 * 7 if last_batch == "drop" else len(dataset.table("train"))
    )


def compiled(keras: Any, optimizer: Any) -> Any:
    """A linear model of the mean colour."""
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(seed=1)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
    return model


@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_padding_counts_nothing_in_keras(dataset: Dataset, class_weights: str) -> None:
    """26 records in a batch of 40: the loss, the gradient and the weighted accuracy of the 26, in float64."""
    keras = pytest.importorskip("keras")
    weighing: dict[str, Any] = {} if class_weights == "none" else {"class_weights": class_weights}
    told: dict[str, Any] = {"batch_size": 40, "image_size": 16, "last_batch": "pad", "epoch": 0, **weighing}
    model = compiled(keras, keras.optimizers.SGD(1.0))
    kernel, bias = (value.astype(np.float64) for value in model.get_weights())
    (batch,) = dataset.batches("train", **told)
    means = batch.images.astype(np.float64).mean(axis=(1, 2))[:26] / 255
    labels = batch.labels[:26]
    logits = means @ kernel + bias
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    each = np.ones(26) if class_weights == "none" else 26 / 2 / np.bincount(labels)[labels]
    loss = -(np.log(probabilities[np.arange(26), labels]) * each).sum() / each.sum()
    right = ((logits.argmax(axis=1) == labels) * each).sum() / each.sum()
    error = (probabilities - np.eye(2)[labels]) * each[:, None] / each.sum()
    history = model.fit(dataset.tf("train", **told), shuffle=False, verbose=0).history
    assert history["loss"] == pytest.approx([loss], rel=1e-5)
    assert history["weighted_accuracy"] == pytest.approx([right], rel=1e-5)
    assert model.get_weights()[0] == pytest.approx(kernel - means.T @ error, abs=1e-5)
    assert model.get_weights()[1] == pytest.approx(bias - error.sum(axis=0), abs=1e-5)


def test_evaluate_of_a_padded_split_is_that_of_its_records(dataset: Dataset) -> None:
    keras = pytest.importorskip("keras")
    model = compiled(keras, "sgd")
    told: dict[str, Any] = {"batch_size": 3, "image_size": 16}
    padded = model.evaluate(dataset.tf("test", last_batch="pad", **told), verbose=0, return_dict=True)
    exact = model.evaluate(dataset.tf("test", **told), verbose=0, return_dict=True)
    for name in ("loss", "weighted_accuracy"):
        assert padded[name] == pytest.approx(exact[name], rel=1e-5), name


def test_wrong_requests_say_what_there_is(dataset: Dataset) -> None:
    with pytest.raises(NotFoundError, match="train, test"):
        dataset.tf("validation")
    with pytest.raises(UsageError, match="partial"):
        dataset.tf("train", epochs=2, last_batch="partial")
    with pytest.raises(ConfigError, match=r"balance = 'even'.*'natural', 'uniform'"):
        dataset.tf("train", balance="even")
    with pytest.raises(UsageError, match="unknown argument 'blance' of batches") as caught:
        dataset.batches("train", blance="uniform")  # type: ignore[call-arg]
    assert caught.value.remedy == "did you mean 'balance'?"
    with pytest.raises(UsageError, match="step = 99"):
        dataset.batches("train", batch_size=8, step=99)
    with pytest.raises(NotFoundError, match="did you mean 'train'"):
        dataset.tf("Trian")
    assert dataset.splits == ["train", "test"]
    assert dataset.classes == ["a", "b"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size = 0 must be at least 1"),
        ({"image_size": 0}, "image_size = 0 must be at least 1"),
        ({"image_size": (64, 48)}, r"image_size = \(64, 48\): images are square"),
        ({"image_size": ()}, "images are square"),
        ({"epoch": -1}, "epoch = -1 must be at least 0"),
        ({"first_epoch": -1}, "first_epoch = -1 must be at least 0"),
        ({"epoch": 1, "first_epoch": 2}, "epoch = 1 and first_epoch = 2"),
        ({"epochs": 0}, "epochs = 0 must be at least 1"),
        ({"seed": -1}, "seed = -1"),
        ({"augment": None}, r"augment = None .* \(give True or False or a dict or an AugmentSettings"),
        ({"augment": 0}, "augment = 0"),
        ({"augment": {"mixpu": 1}}, "unknown key 'mixpu' in augment .*'mixup'"),
        ({"augment": {"mixup": -1}}, "mixup = -1"),
        ({"augment": {"erasing.probability": 2.0}}, "erasing.probability = 2.0"),
        ({"augment": {"erasing.probabilty": 1.0}}, "'erasing.probabilty' .*'erasing.probability'"),
        ({"augment": {"erasing.probability": 1.0, "erasing": {"probability": 1.0}}}, "twice"),
        ({"last_batch": ""}, "last_batch = ''"),
        ({"balance": ""}, "balance = ''"),
        ({"class_weights": {"a": -1}}, "weight of 'a'"),
        ({"block_records": 0}, "block_records = 0"),
    ],
)
def test_wrong_values_are_refused(dataset: Dataset, wrong: dict[str, Any], message: str) -> None:
    for read in (dataset.tf, dataset.batches):
        with pytest.raises(UsageError, match=message):
            read("train", **{"batch_size": 8, **wrong})


def test_values_of_other_types_that_have_one_meaning(dataset: Dataset, tmp_path: Path) -> None:
    told: dict[str, Any] = {"batch_size": np.int64(13), "image_size": (16, 16), "epoch": 0}
    (flipped, _), *_ = dataset.tf("train", augment={"random_resized_crop": False}, **told)
    settings = AugmentSettings(random_resized_crop=False)
    (by_settings, _), *_ = dataset.batches("train", augment=settings, **told)
    assert np.array_equal(flipped, by_settings)
    erased = [
        next(iter(dataset.batches("train", augment=augment, **told))).images
        for augment in ({"erasing.probability": 1.0}, {"erasing": {"probability": 1.0}})
    ]
    assert np.array_equal(erased[0], erased[1])
    (plain, labels), *_ = dataset.batches("train", augment=False, **told)
    (as_tensors, _), *_ = dataset.tf("train", augment=False, **told)
    (augmented, same_labels), *_ = dataset.batches("train", augment=True, **told)
    assert labels.tolist() == same_labels.tolist()
    assert np.array_equal(plain, as_tensors)
    ordinals = next(iter(dataset.batches("train", **told))).ordinals
    stored = {
        int(ordinal): image
        for batch in dataset.batches("train", training=False, batch_size=8, image_size=16)
        for ordinal, image in zip(batch.ordinals, batch.images, strict=True)
    }
    assert np.array_equal(plain, [stored[int(ordinal)] for ordinal in ordinals])
    assert not np.array_equal(plain, augmented)
    publish(tmp_path, coloured({"train": {"a": 2}, "validation": {"a": 2}}), name="set")
    opened = open_dataset("set", tmp_path)
    assert len(opened.table("val")) == 2
    assert len(opened.tf("val", batch_size=1, image_size=16)) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"root": ""}, "root of the datasets is empty"),
        ({"cache": ""}, "cache = ''"),
        ({"max_bad_records": -1}, "max_bad_records = -1"),
        ({"max_bad_records": "3"}, "max_bad_records = '3'"),
        ({"ram_budget_bytes": 0}, "ram_budget_bytes = 0"),
        ({"cashe": "memory"}, "unknown argument 'cashe' of open_dataset .*'cache'"),
    ],
)
def test_a_dataset_is_not_opened_with_wrong_values(
    dataset: Dataset, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        open_dataset("set", **{"root": Path(dataset.version.storage.uri).parent, **wrong})


@pytest.mark.parametrize(
    ("reading", "asked", "message", "remedy"),
    [
        (
            {"cache": "memory", "cache_bytes": 1, "cache_overflow": "refuse"},
            {},
            r"^the encoded images of set@1 train take \d+,\d+ bytes, and the cache \(memory\) may take 1$",
            r"^set cache_bytes of open_dataset to at least \d+ and ram_budget_bytes of open_dataset to twice",
        ),
        (
            {"mode": "streaming"},
            {"balance": "uniform"},
            "^mode = 'streaming' and balance = 'uniform' needs an exact order$",
            "^set mode of open_dataset to auto or indexed$",
        ),
    ],
)
def test_settings_of_reading_are_told_as_arguments(
    dataset: Dataset, reading: dict[str, Any], asked: dict[str, Any], message: str, remedy: str
) -> None:
    opened = open_dataset("set", Path(dataset.version.storage.uri).parent, **reading)
    with pytest.raises(ConfigError) as caught:
        opened.tf("train", batch_size=8, image_size=16, **asked)
    assert re.search(message, caught.value.message)
    assert re.search(remedy, caught.value.remedy or "")


def test_how_to_read_is_said_when_the_dataset_is_opened(dataset: Dataset) -> None:
    root = Path(dataset.version.storage.uri).parent
    wanted = list(dataset.tf("train", batch_size=8, image_size=16, decoding="whole"))
    for options in ({"decoder": "tensorflow"}, {"cache": "memory"}, {"ram_budget_bytes": 1 << 27}):
        opened = open_dataset("set", root, **options)  # type: ignore[arg-type]
        for (images, labels), (wanted_images, wanted_labels) in zip(
            opened.tf("train", batch_size=8, image_size=16, decoding="whole"), wanted, strict=True
        ):
            assert np.abs(images.numpy().astype(int) - wanted_images.numpy().astype(int)).mean() < 1
            assert np.array_equal(labels, wanted_labels)
    streamed = open_dataset("set", root, mode="streaming").tf("train", batch_size=2, image_size=16)
    assert sorted(np.concatenate([labels for _, labels in streamed]).tolist()) == [0] * 17 + [1] * 9


def test_options_in_python_are_the_settings() -> None:
    assert set(ReadingOptions.__annotations__) == set(ReadingSettings.model_fields)
    # Named otherwise there, or for training runs only.
    left_out = {
        "folds",
        "left_out_fold",
        "image_size",
        "global_batch_size",
        "normalization",
        "last_batch",
        "seed",
        "objects",
        "mixture_weights",
        "mixture_temperature",
        "mixture_end",
    }
    assert {*OrderOptions.__annotations__, *ImageOptions.__annotations__} == set(
        DataSettings.model_fields
    ) - left_out


def test_damage_comes_out_as_our_error_with_names(tmp_path: Path) -> None:
    from shardmill.training.tensorflow.data.pipeline import reraise

    version = publish(tmp_path, coloured(COUNTS), name="set")
    damaged = open_dataset("set", root=tmp_path)
    path = version.storage.local_path(version.shards("train")[1].path)
    assert path is not None
    pipeline = pipeline_of(damaged)
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    with pytest.raises(CorruptDataError, match=r"record [0-9a-f]{16} at byte \d+ of .*train-00001-of-00002"):
        reraise([pipeline], lambda: list(pipeline.dataset(0, 4)))
