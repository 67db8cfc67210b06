"""RandAugment, MixUp and CutMix: draws, pixels against Pillow and numpy, labels, any number of ranks."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from shardmill.training.augment.kinds.mixing import beta_quantiles
from shardmill.training.augment.kinds.rand_augment import OPS
from shardmill.training.config import AugmentSettings
from tests.samples.images.rand_augmented import SIZE, WARPS, Batch, images_of, operated
from tests.samples.training.drawn import Drawn, drawn_for_batches


def settings_of(**settings: object) -> AugmentSettings:
    return AugmentSettings.model_validate(settings)


def draws_of(num: int, magnitude: float = 7.0, seed: int = 1, **settings: object) -> Drawn:
    if "num_ops" in settings:
        settings["randaugment"] = {"num_ops": settings.pop("num_ops"), "magnitude": magnitude}
    return drawn_for_batches(settings_of(**settings), seed, 0, np.arange(num), SIZE)


@functools.cache
def augment_of(settings_json: str) -> Any:
    from shardmill.training.tensorflow.augment_batches import BatchAugment

    return BatchAugment(AugmentSettings.model_validate_json(settings_json))


def augmented(images: Batch, draws: Drawn) -> Batch:
    import tensorflow as tf

    augment = augment_of(draws.settings.model_dump_json())
    done: Batch = augment(tf.constant(images), tf.nest.map_structure(tf.constant, draws.nested)).numpy()
    return done


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 2.0, 10.0])
def test_shares_have_the_beta_distribution(alpha: float) -> None:
    """Against the moments, and the median, which are known in closed form."""
    probabilities = (np.arange(100_000) + 0.5) / 100_000
    shares = beta_quantiles(probabilities, alpha)
    assert (np.diff(shares) >= 0).all()
    assert shares[0] >= 0
    assert shares[-1] <= 1
    assert np.allclose(shares + shares[::-1], 1.0)
    assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=1e-3)
    fourth = 3 / (16 * (2 * alpha + 1) * (2 * alpha + 3))  # fourth central moment
    assert ((shares - 0.5) ** 4).mean() == pytest.approx(fourth, rel=2e-3)
    if alpha == 1:
        assert np.allclose(shares, probabilities)


def test_operations_are_drawn_alike_often_and_in_both_directions() -> None:
    draws = draws_of(14_000, num_ops=2)
    counts = np.bincount(draws.ops.reshape(-1), minlength=len(OPS))
    assert counts.size == len(OPS) == 14
    assert np.abs(counts - 2_000).max() < 250
    assert (draws.ops[:, 0] == draws.ops[:, 1]).mean() == pytest.approx(1 / 14, abs=0.01)
    factors = draws.amounts[draws.ops == OPS.index("color")]
    assert np.unique(factors).tolist() == pytest.approx([0.37, 1.63])
    assert (factors > 1).mean() == pytest.approx(0.5, abs=0.05)


def test_known_draws() -> None:
    """Augmentation is part of a run's exact resume: its draws never change between versions."""
    draws = draws_of(4, seed=5, num_ops=2, mixup=0.2, cutmix=1.0)
    assert draws.ops.tolist() == [[2, 4], [11, 8], [10, 9], [2, 5]]
    assert draws.blend.tolist() == pytest.approx([0.9755374, 1.0, 0.983164, 1.0])
    assert draws.boxes.tolist() == [[0, 0, 0, 0], [0, 0, 23, 17], [0, 0, 0, 0], [0, 9, 28, 23]]


def test_draws_depend_on_the_position_alone() -> None:
    settings = settings_of(randaugment={"num_ops": 2}, mixup=0.3, cutmix=1.0, mix_probability=0.8)
    whole = drawn_for_batches(settings, 3, 5, np.arange(64), SIZE)
    part = drawn_for_batches(settings, 3, 5, np.arange(20, 40), SIZE)
    for name, arrays in part.nested.items():
        assert all(np.array_equal(arrays[key], whole.nested[name][key][20:40]) for key in arrays)
    other = drawn_for_batches(settings, 3, 6, np.arange(64), SIZE)
    assert not np.array_equal(other.blend, whole.blend)


def test_shares_of_mixup_and_cutmix() -> None:
    mixup = draws_of(20_000, mixup=1.0)
    assert mixup.blend.min() >= 0.5
    assert mixup.blend.mean() == pytest.approx(0.75, abs=0.01)
    assert np.array_equal(mixup.own_share, mixup.blend)
    assert not mixup.boxes.any()
    cutmix = draws_of(20_000, cutmix=1.0)
    area = cutmix.boxes[:, 2] * cutmix.boxes[:, 3] / SIZE**2
    assert (cutmix.blend == 1).all()
    assert np.allclose(cutmix.own_share, 1 - area)
    assert (cutmix.boxes >= 0).all()
    assert (cutmix.boxes[:, :2] + cutmix.boxes[:, 2:] <= SIZE).all()
    assert area.max() > 0.9
    assert 0.2 < area.mean() < 0.5, "half, but for what lies outside the image"
    both = draws_of(20_000, mixup=1.0, cutmix=1.0, mix_probability=0.6)
    blended, boxed = both.blend < 1, both.boxes[:, 2] > 0
    assert not (blended & boxed).any()
    assert blended.mean() == pytest.approx(0.3, abs=0.02)
    assert boxed.mean() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("magnitude", [0.0, 5.0, 10.0])
def test_operations_are_pillows(magnitude: float) -> None:
    num = 112
    draws = draws_of(num, magnitude, num_ops=1)
    images = images_of(num)
    images[3] = 90  # nothing to stretch or to equalise
    found = augmented(images, draws).astype(float)
    assert set(draws.ops[:, 0]) == set(range(len(OPS)))
    for row, number in enumerate(draws.ops[:, 0]):
        name = OPS[number]
        wanted = operated(images[row], name, draws.amounts[row, 0], draws.warps[row, 0])
        most = 0.51 if name in WARPS else 1.0
        assert np.abs(found[row] - wanted).max() <= most, (name, row)


def test_warps_go_as_far_as_they_say() -> None:
    draws = draws_of(2_000, 10.0, num_ops=1)
    a, b, c, d, e, f, *_ = draws.warps[:, 0].T
    ops = draws.ops[:, 0]
    rotated = ops == OPS.index("rotate")
    assert set(np.degrees(np.arctan2(b, a))[rotated].round(2)) == {-30.0, 30.0}
    assert set(b[ops == OPS.index("shear_x")].round(4)) == {np.float32(-0.3), np.float32(0.3)}
    assert set(d[ops == OPS.index("shear_y")].round(4)) == {np.float32(-0.3), np.float32(0.3)}
    assert set((c / SIZE)[ops == OPS.index("translate_x")].round(4)) == {np.float32(-0.45), np.float32(0.45)}
    assert set((f / SIZE)[ops == OPS.index("translate_y")].round(4)) == {np.float32(-0.45), np.float32(0.45)}
    centre = (SIZE - 1) / 2
    still = rotated | (ops == OPS.index("shear_x")) | (ops == OPS.index("shear_y"))
    assert np.allclose((a + b)[still] * centre + c[still], centre, atol=1e-4)
    assert np.allclose((d + e)[still] * centre + f[still], centre, atol=1e-4)


def test_mixed_images_are_their_formula() -> None:
    num = 64
    draws = draws_of(num, mixup=0.5, cutmix=1.0, mix_probability=0.9)
    images = images_of(num).astype(np.float64)
    found = augmented(images.astype(np.uint8), draws)
    for row in range(num):
        top, left, height, width = draws.boxes[row]
        share, partner = float(draws.blend[row]), images[row ^ 1]
        wanted = share * images[row] + (1 - share) * partner
        box = (slice(top, top + height), slice(left, left + width))
        wanted[box] = partner[box]
        assert np.abs(found[row] - wanted).max() <= 0.501
    whole = (draws.blend == 1) & (draws.boxes[:, 2] == 0)
    assert np.array_equal(found[whole], images[whole])


def test_any_number_of_ranks_makes_the_same() -> None:
    settings = settings_of(randaugment={"num_ops": 2, "magnitude": 6}, mixup=0.4, cutmix=1.0)
    images, positions = images_of(24), np.arange(48, 72)
    whole = augmented(images, drawn_for_batches(settings, 1, 2, positions, SIZE))
    for cuts in ((0, 12, 24), (0, 8, 16, 24)):
        parts = []
        for start, stop in itertools.pairwise(cuts):
            draws = drawn_for_batches(settings, 1, 2, positions[start:stop], SIZE)
            parts.append(augmented(images[start:stop], draws))
        assert np.array_equal(np.concatenate(parts), whole)


def test_a_sorted_histogram_is_a_histogram() -> None:
    import tensorflow as tf

    from shardmill.training.augment.kinds import rand_augment

    images = images_of(5)
    images[2] = 255
    images[3, :, :, 1] = 0
    counted = rand_augment.histogram(tf.constant(images)).numpy()
    wanted = [[np.bincount(image[..., c].reshape(-1), minlength=256) for c in range(3)] for image in images]
    assert np.array_equal(counted, wanted)
    assert np.array_equal(rand_augment.sorted_histogram(tf.constant(images)).numpy(), wanted)


def test_labels_are_mixed_in_the_shares_of_the_images() -> None:
    import tensorflow as tf

    from shardmill.training.tasks.single_label import SingleLabel
    from shardmill.training.tasks.task import Mixed
    from shardmill.training.tensorflow.augment_batches import soft_labels
    from shardmill.training.tensorflow.operations import OPERATIONS

    draws = draws_of(200, mixup=0.4, cutmix=1.0)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 200).astype(np.int32)
    logits = tf.constant(rng.normal(size=(200, 5)), tf.float32)
    own = tf.constant(draws.own_share)
    soft = soft_labels(labels, own, 5).numpy()
    assert np.allclose(soft.sum(axis=1), 1.0)
    for row in range(200):
        wanted = np.zeros(5)
        wanted[labels[row]] += draws.own_share[row]
        wanted[labels[row ^ 1]] += 1 - draws.own_share[row]
        assert np.allclose(soft[row], wanted)
    task, mixed = SingleLabel(OPERATIONS, 5), Mixed(labels[np.arange(200) ^ 1], own)
    dominating = np.where(draws.own_share >= 0.5, labels, mixed.labels)
    hits = logits.numpy().argmax(axis=1) == dominating
    assert task.scores(logits, labels, mixed).numpy().tolist() == hits.tolist()
    against_soft = tf.nn.softmax_cross_entropy_with_logits(soft, logits).numpy()
    assert np.allclose(task.training_losses(logits, labels, mixed).numpy(), against_soft, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"mixup": -1}, "mixup"),
        ({"randaugment": {"magnitude": 11}}, "magnitude"),
        ({"color_jitter": {"hue": 0.6}}, "hue"),
        ({"erasing": {"scale": [0.5, 0.1]}}, "smaller first"),
        ({"erasing": {"fill": "pink"}}, "fill"),
    ],
)
def test_wrong_settings_are_refused(values: dict[str, object], reason: str) -> None:
    from shardmill.infra.errors import ConfigError
    from shardmill.infra.settings import validate

    with pytest.raises(ConfigError, match=reason):
        validate(AugmentSettings, values)
