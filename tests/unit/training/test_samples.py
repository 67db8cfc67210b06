"""Images of other depths and numbers of channels: read, resized, augmented, normalised, shown, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardmill import Dataset, open_dataset, show_batch
from shardmill.infra.codecs.arrays import for_people
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.preparation import SampleKind
from shardmill.training.augment.parameters import augment_image, draw_batch_parameters, draw_parameters
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.models import ModelSpec, PixelStatistics
from shardmill.training.models.spec import pixels_of
from shardmill.training.reading.decode import resize_into
from shardmill.training.tasks.settings import settings_for
from tests.samples.datasets.published import measured, publish

Array = npt.NDArray[Any]
KINDS = [("uint8", 4), ("uint16", 1), ("uint16", 3), ("uint16", 5), ("float32", 1), ("float32", 2)]
COUNTS = {"train": {"a": 5, "b": 4}, "test": {"a": 3}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    for dtype, channels in KINDS:
        publish(root, measured(dtype, channels, COUNTS), name=f"{dtype}x{channels}")
    return root


def opened(root: Path, dtype: str, channels: int, **reading: Any) -> Dataset:
    return open_dataset(f"{dtype}x{channels}", root=root, **reading)


@pytest.mark.parametrize(("dtype", "channels"), KINDS)
@pytest.mark.parametrize("cache", [None, "decoded"])
def test_whole_images_are_those_that_were_stored(
    root: Path, dtype: str, channels: int, cache: str | None
) -> None:
    reading = {} if cache is None else {"cache": "memory", "cache_form": cache}
    dataset = opened(root, dtype, channels, **reading)
    wanted = [one.pixels for one in measured(dtype, channels, COUNTS) if one.split == "train"]
    found = [
        image
        for batch in dataset.batches("train", batch_size=4, image_size=None, training=False)
        for image in batch.images
    ]
    assert found[0].dtype == dtype
    assert sorted(one.tobytes() for one in found) == sorted(one.tobytes() for one in wanted)


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 4), ("uint16", 5), ("float32", 2)])
@pytest.mark.parametrize("out", [(9, 9), (20, 22), (30, 12), (40, 50)])
def test_images_are_resized_as_in_float64(dtype: str, channels: int, out: tuple[int, int]) -> None:
    random = np.random.default_rng(3).random((24, 31, channels))
    white = 9.0 if dtype == "float32" else float(np.iinfo(dtype).max)
    pixels = (random * white).astype(dtype)[2:22, 3:29]  # a window: its rows do not lie one behind the other
    found = np.empty((*out, channels), dtype)
    resize_into(pixels, found)
    wanted = pixels.astype(np.float64)
    for axis, length in enumerate(out):
        if length < pixels.shape[axis]:
            wanted = np.moveaxis(_area(pixels.shape[axis], length) @ np.moveaxis(wanted, axis, -2), -2, axis)
    for axis, length in enumerate(out):
        if wanted.shape[axis] != length:
            wanted = np.moveaxis(
                _linear(wanted.shape[axis], length) @ np.moveaxis(wanted, axis, -2), -2, axis
            )
    # Whole numbers are rounded once. Places among 31 pixels have 19 bits behind the point in float32.
    steps = {"uint8": 0.501, "uint16": 0.75, "float32": white * 2.0**-19}[dtype]
    assert np.abs(found - wanted).max() <= steps


def _area(before: int, after: int) -> Array:
    edges = np.arange(after + 1) * before / after
    ends = np.minimum(edges[1:, None], np.arange(1, before + 1))
    shares = np.clip(ends - np.maximum(edges[:-1, None], np.arange(before)), 0, None)
    return shares / shares.sum(1, keepdims=True)


def _linear(before: int, after: int) -> Array:
    place = np.clip((np.arange(after) + 0.5) * before / after - 0.5, 0, before - 1)
    return np.clip(1 - np.abs(place[:, None] - np.arange(before)), 0, 1)


AUGMENT = AugmentSettings.model_validate(
    {
        "vertical_flip": True,
        "quarter_turns": True,
        "erasing": {"probability": 1.0},
        "color_jitter": {"brightness": 0.5},
    }
)


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 4), ("uint16", 5), ("uint16", 3), ("float32", 2)])
def test_augmentation_is_that_of_numpy_in_float64(dtype: str, channels: int) -> None:
    images = [one.pixels[:20, :20] for one in measured(dtype, channels, {"train": {"a": 6}})]
    sides = np.full(6, 20)
    drawn = draw_parameters(AUGMENT, 1, 0, np.arange(6), sides, sides, 20)
    by_kind = {one.key: arrays for one, arrays in drawn.images}
    assert len({tuple(row) for row in by_kind["Erasing"]["boxes"].tolist()}) > 1
    for row, image in enumerate(images):
        found = augment_image(image.copy(), drawn, row)
        wanted = image.astype(np.float64)
        wanted = wanted[::-1] if by_kind["Flips"]["top_bottom"][row] else wanted
        wanted = wanted[:, ::-1] if by_kind["Flips"]["left_right"][row] else wanted
        wanted = np.rot90(wanted, by_kind["QuarterTurns"]["turns"][row]).copy()
        factor = by_kind["ColorJitter"]["matrices"][row, 0, 0]
        assert 0.5 <= factor <= 1.5
        with np.errstate(invalid="ignore"):
            wanted = wanted * factor
        if dtype != "float32":
            wanted = np.rint(wanted).clip(0, np.iinfo(dtype).max)
        top, left, height, width = by_kind["Erasing"]["boxes"][row].tolist()
        box = slice(top, top + height), slice(left, left + width)
        wanted[box] = np.nanmean(np.where(np.isfinite(wanted), wanted, np.nan), (0, 1))
        nearly = {"rtol": 2e-6} if dtype == "float32" else {"rtol": 0, "atol": 0.5001}
        np.testing.assert_allclose(found, wanted, **nearly)


def test_noise_covers_all_values_of_16_bits() -> None:
    settings = AugmentSettings.model_validate(
        {
            "horizontal_flip": False,
            "erasing": {"probability": 1.0, "fill": "noise", "scale": [0.5, 0.5], "ratio": [1, 1]},
        }
    )
    sides = np.full(1, 64)
    drawn = draw_parameters(settings, 1, 0, np.arange(1), sides, sides, 64)
    found = augment_image(np.zeros((64, 64, 5), np.uint16), drawn, 0)
    top, left, height, width = drawn.images[0][1]["boxes"][0].tolist()
    box = found[top : top + height, left : left + width].astype(np.float64)
    assert box.min() < 100
    assert box.max() > 65_400
    assert abs(box.mean() - 32_767) < 600  # 5 deviations of the mean


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_mixed_images_are_those_of_float64(dtype: str) -> None:
    tf = pytest.importorskip("tensorflow")
    from shardmill.training.tensorflow.augment_batches import BatchAugment

    settings = AugmentSettings(mixup=1.0, mix_probability=0.5)
    images = np.stack([one.pixels[:16, :16] for one in measured(dtype, 5, {"train": {"a": 4}})])
    drawn = draw_batch_parameters(settings, 0, 0, np.arange(4, dtype=np.int64), 16)
    found = BatchAugment(settings)(tf.constant(images), tf.nest.map_structure(tf.constant, drawn)).numpy()
    own = drawn["Mixing"]["blend"][:, None, None, None].astype(np.float64)
    assert found.dtype == dtype
    with np.errstate(invalid="ignore"):
        wanted = own * images + (1 - own) * images[[1, 0, 3, 2]]
    wanted = np.where(own == 1, images, wanted)
    assert 0 < (own == 1).sum() < 4
    finite = np.isfinite(wanted)
    steps = 0.51 if dtype == "uint16" else 1e-5
    assert np.abs(found[finite] - wanted[finite]).max() <= steps
    assert np.isfinite(found).sum() == finite.sum()


@pytest.mark.parametrize(
    ("dtype", "augment", "named"),
    [
        ("uint16", {"randaugment": {"num_ops": 2}}, "augment.randaugment"),
        ("uint16", {"color_jitter": {"brightness": 0.1, "hue": 0.1}}, "augment.color_jitter.hue"),
        ("float32", {"color_jitter": {"contrast": 0.1, "saturation": 0.1}}, "contrast and .*saturation"),
        ("float32", {"erasing": {"probability": 0.1, "fill": "noise"}}, "augment.erasing.fill = 'noise'"),
    ],
)
def test_augmentation_without_a_meaning_is_refused(
    root: Path, dtype: str, augment: dict[str, Any], named: str
) -> None:
    dataset = opened(root, dtype, {"uint16": 5, "float32": 2}[dtype])
    with pytest.raises(ConfigError, match=f"{named} has no meaning for images of {dtype} with"):
        dataset.tf("train", batch_size=4, image_size=12, augment=augment)
    config = TrainConfig.model_validate({"augment": augment})
    with pytest.raises(ConfigError, match="has no meaning"):
        settings_for(config, dataset.version)


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        ({"decoder": "tensorflow"}, "reads no uint16 with 5 channels"),
        ({"mode": "streaming"}, "TensorFlow does not decode uint16 with 5 channels"),
    ],
)
def test_tensorflow_alone_does_not_decode_them(root: Path, reading: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(root, "uint16", 5, **reading).tf("train", batch_size=4, image_size=12)


def test_channels_follow_from_the_dataset(root: Path) -> None:
    dataset = opened(root, "uint16", 5)
    with pytest.raises(ConfigError, match=r"image_channels = 3, and the images of .* are uint16 with 5 chan"):
        dataset.batches("train", batch_size=4, image_size=12, image_channels=3)
    assert settings_for(TrainConfig(), dataset.version).data.image_channels == 5
    with pytest.raises(ConfigError, match="image_channels = 1"):
        settings_for(TrainConfig.model_validate({"data": {"image_channels": 1}}), dataset.version)
    quantised = TrainConfig.model_validate({"export": {"formats": ["litert-int8"]}})
    with pytest.raises(ConfigError, match=r"'litert-int8', and the images .* float32 with 2 channels"):
        settings_for(quantised, opened(root, "float32", 2).version)


@pytest.mark.parametrize(
    ("dtype", "channels", "name"),
    [
        ("uint8", 4, "small_cnn"),
        ("uint16", 5, "compact_resnet"),
        ("float32", 2, "tests.samples.models.normalized_model"),
    ],
)
def test_models_normalise_by_the_statistics_of_the_split(
    root: Path, dtype: str, channels: int, name: str
) -> None:
    pytest.importorskip("tensorflow")
    from shardmill.training.tensorflow.models import build_model

    statistics = pixels_of(opened(root, dtype, channels).version.manifest, channels)
    spec = ModelSpec(name, 3, 16, image_channels=channels, dtype=dtype, pixels=statistics)  # type: ignore[arg-type]
    model = build_model(spec)
    assert model.input_shape == (None, 16, 16, channels)
    pixels = np.stack([one.pixels for one in measured(dtype, channels, COUNTS) if one.split == "train"])
    import keras

    normalised = keras.Model(model.inputs[0], model.get_layer("normalization").output)
    found = np.asarray(normalised(pixels[:, :16, :16]), np.float64)
    values = pixels.astype(np.float64)
    values[~np.isfinite(values)] = np.nan
    mean, std = (measure(values, (0, 1, 2)) for measure in (np.nanmean, np.nanstd))
    wanted = np.nan_to_num((values[:, :16, :16] - mean) / std, nan=0.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_normalised_is_refused_or_left_small() -> None:
    spec = ModelSpec("small_cnn", 3, 16, image_channels=2, dtype="float32")
    with pytest.raises(ConfigError, match="float32 images have no range"):
        _ = spec.normalization
    constant = PixelStatistics((5.0, 0.0), (0.0, 0.0))
    spec = ModelSpec("small_cnn", 3, 16, image_channels=2, dtype="float32", pixels=constant)
    assert spec.normalization.std == (5.0, 1.0)
    spec = ModelSpec("small_cnn", 3, 16, image_channels=2, dtype="uint16")
    assert spec.normalization == PixelStatistics((32_767.5,) * 2, (32_767.5,) * 2)


def test_pretrained_models_refuse_other_images() -> None:
    pytest.importorskip("tensorflow")
    from shardmill.training.tensorflow.models import build_model

    for spec in (
        ModelSpec("MobileNetV2", 3, 32, image_channels=5, dtype="uint16"),
        ModelSpec("MobileNetV2", 3, 32, image_channels=3, dtype="uint16"),
        ModelSpec("MobileNetV2", 3, 32, image_channels=4),
    ):
        with pytest.raises(
            ConfigError, match="'MobileNetV2' takes grey or RGB of 8 bits, and the images are"
        ):
            build_model(spec)


def test_pictures_for_people_are_stretched() -> None:
    ramp = np.linspace(1_000, 2_000, 400).reshape(20, 20)
    grey = for_people(ramp[:, :, None].astype(np.uint16))
    assert (grey.shape, grey.dtype, grey.min(), grey.max()) == ((20, 20, 1), np.uint8, 0, 255)
    assert (np.diff(grey.ravel().astype(int)) >= 0).all()
    assert abs(int(grey[10, 0, 0]) - 128) <= 2
    # Two channels of other ranges: red and green, each with its own; what is not finite is black.
    both = np.stack([ramp, -1e6 * ramp], axis=2).astype(np.float32)
    both[19, 19] = np.nan
    shown = for_people(both)
    assert shown.shape == (20, 20, 3)
    assert (shown[0, 0].tolist(), shown[19, 18].tolist(), shown[19, 19].tolist()) == (
        [0, 255, 0], [255, 0, 0], [0, 0, 0],
    )  # fmt: skip
    flat = for_people(np.full((4, 4, 1), np.inf, np.float32))
    assert not flat.any()
    kept = np.arange(48, dtype=np.uint8).reshape(4, 3, 4)
    assert np.array_equal(for_people(kept), kept[:, :, :3])


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 4), ("uint16", 5), ("float32", 2)])
def test_pages_show_them(root: Path, tmp_path: Path, dtype: str, channels: int) -> None:
    from shardmill.training.show_augmented import show_augmented

    dataset = opened(root, dtype, channels)
    batch = next(iter(dataset.batches("train", batch_size=4, image_size=16)))
    shown = show_batch(batch, dataset)
    assert [cell.pixels.shape[2] for cell in shown.cells] == [3] * 4
    assert (tmp_path / "batch.png") == shown.save(tmp_path / "batch.png")
    with pytest.raises(UsageError, match=f"images have {channels} channels, and value_range"):
        show_batch(batch, dataset, value_range=(0, 1))
    assert dataset._repr_html_().count("data:image/jpeg") > 1
    config = TrainConfig.model_validate({"data": {"image_size": 16, "global_batch_size": 4}})
    found = show_augmented(dataset.version.ref, config, root=root, out=tmp_path / "augmented.png")
    assert Path(found["augmented"]).stat().st_size > 1_000


def test_the_samples_of_a_version_say_their_sizes() -> None:
    assert (SampleKind("float32", 7).pixel_bytes, SampleKind("uint16", 3).white) == (28, 65_535)
    assert SampleKind("uint8", 1).decoded == SampleKind("uint8", 3)
    assert str(SampleKind("uint16", 1)) == "uint16 with 1 channel"
