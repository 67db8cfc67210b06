"""Drift between two versions, from indexes and inputs written by the contract alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.dataset.drift.figures import Drift, DriftLimits
from shardmill.infra.dataset.drift.measuring import measure
from tests.samples.datasets.indexes import Image, indexed_version

RNG = np.random.default_rng(7)


def facts(rng: np.random.Generator, **other: Any) -> dict[str, Any]:
    """The columns of an image of the usual camera: half of them upright, levels around 120."""
    sides = [640, 480] if rng.random() < 0.5 else [480, 640]
    level = rng.normal(120, 25)
    found = {
        "source_width": sides[0],
        "source_height": sides[1],
        "source_bytes": int(rng.lognormal(11, 0.4)),
        "pixel_mean": [level + 5, level, level - 8],
        "pixel_std": [rng.normal(60, 8)] * 3,
        "perceptual_hash": int(rng.integers(0, 1 << 64, dtype=np.uint64)),
    }
    return found | other


def photos(
    name: str, count: int, seed: int, alter: Callable[[int], dict[str, Any]] = lambda _: {}, **more: Any
) -> list[Image]:
    """Images of three classes, some of which are altered."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["hat", "shoe", "sock"], count, p=[0.5, 0.3, 0.2])
    return [
        Image(f"{name}{number:05d}", **({"label": str(label)} | more), facts=facts(rng, **alter(number)))
        for number, label in enumerate(labels)
    ]


def drift(
    tmp_path: Path,
    new: list[Image],
    old: list[Image] | None = None,
    others: tuple[list[Image], list[Image]] = ([], []),
) -> Drift:
    """The drift of a version that has new images in a shard of its own."""
    old = photos("old", 1500, 1) if old is None else old
    first = indexed_version(tmp_path, 1, {"train-0": old}, others[0])
    second = indexed_version(tmp_path, 2, {"train-0": old, "train-1": new}, [*others[0], *others[1]])
    return measure(first, second, DriftLimits())


def exceeded(found: Drift) -> set[tuple[str, str]]:
    return {(figure.group, figure.scope) for figure in found.exceeded}


@pytest.mark.parametrize("count", [3, 40, 600])
def test_more_of_the_same_is_no_drift(tmp_path: Path, count: int) -> None:
    found = drift(tmp_path, photos("new", count, 2))
    assert exceeded(found) == set()
    groups = {(figure.group, figure.scope, figure.num_after) for figure in found.figures if figure.split}
    assert groups == {
        (group, scope, number)
        for group in ("classes", "sizes", "colours", "looks")
        for scope, number in (("new", count), ("all", 1500 + count))
    }


def test_darker_images(tmp_path: Path) -> None:
    found = drift(tmp_path, photos("new", 200, 2, lambda _: {"pixel_mean": [30.0, 28.0, 26.0]}))
    assert ("colours", "new") in exceeded(found)
    assert exceeded(found) <= {("colours", "new"), ("colours", "all")}
    (figure,) = [one for one in found.exceeded if one.title == "brightness" and one.scope == "new"]
    assert str(figure).startswith(
        "brightness of new train images: median 119 before, now median 28 (distance"
    )


def test_other_settings_are_no_drift_and_do_not_hide_it(tmp_path: Path) -> None:
    """All images are stored at 64 pixels now, which changes their contrast; 200 new ones are dark besides."""

    def small(image: Image) -> Image:
        deviation = image.facts["pixel_std"][0] - 30
        return replace(image, facts=image.facts | {"pixel_std": [deviation] * 3})

    old = photos("old", 600, 1)
    images = {"config": {"image": {"size": 256, "max_pixels": 9}}}
    smaller = {"config": {"image": {"size": 64, "max_pixels": 99}}}
    first = indexed_version(tmp_path, 1, {"train-0": old}, **images)
    second = indexed_version(tmp_path, 2, {"train-1": [small(image) for image in old]}, **smaller)
    found = measure(first, second, DriftLimits())
    assert exceeded(found) == set()
    (contrast,) = [figure for figure in found.figures if figure.scope == "same"]
    assert (contrast.title, contrast.num_before, contrast.num_after) == ("contrast", 600, 600)
    assert contrast.subject == "contrast of the same train images, stored by other settings"
    assert contrast.distance > contrast.limit
    assert not contrast.to_json()["exceeded"]

    dark = photos("new", 200, 2, lambda _: {"pixel_mean": [30.0, 28.0, 26.0]})
    shards = {"train-2": [small(image) for image in [*old[100:], *dark]]}
    third = indexed_version(tmp_path, 3, shards, **smaller)
    found = measure(first, third, DriftLimits())
    assert {(figure.title, figure.scope) for figure in found.exceeded} >= {("brightness", "new")}
    assert "contrast" not in {figure.title for figure in found.exceeded}
    assert found.farthest(1)[0].scope == "new", "drift comes before what settings explain"
    # Limits of what is read change no pixel: then everything counts.
    same = indexed_version(tmp_path, 4, {"train-1": [small(image) for image in old]}, config={
        "image": {"size": 256, "max_pixels": 99}
    })  # fmt: skip
    assert ("colours", "all") in exceeded(measure(first, same, DriftLimits()))


def test_grey_images_beside_coloured_ones(tmp_path: Path) -> None:
    grey = photos("new", 200, 2, lambda number: {"pixel_mean": [119.0 + number % 3], "pixel_std": [60.0]})
    assert {figure.title for figure in drift(tmp_path, grey).exceeded} >= {
        "red against green",
        "blue against green",
    }


def test_another_camera(tmp_path: Path) -> None:
    found = drift(tmp_path, photos("new", 150, 2, lambda _: {"source_width": 4000, "source_height": 3000}))
    assert ("sizes", "new") in exceeded(found)
    texts = [str(figure) for figure in found.exceeded]
    assert any(
        "width of the source of new train images" in text and "now median 4,000 px" in text for text in texts
    )


def test_a_class_that_explodes(tmp_path: Path) -> None:
    found = drift(tmp_path, photos("new", 900, 2, label="sock"))
    assert exceeded(found) == {("classes", "new"), ("classes", "all")}
    assert "“sock” 20.9 % before, now “sock” 100 %" in str(found.exceeded[0])


def test_other_structures(tmp_path: Path) -> None:
    found = drift(tmp_path, photos("new", 300, 2, lambda number: {"perceptual_hash": number % 4}))
    assert exceeded(found) == {("looks", "new"), ("looks", "all")}
    assert str(found.exceeded[0]).startswith("coarse structure of new train images differs (distance 0.")


@pytest.mark.parametrize(("outcome", "group"), [("quarantined", "quarantine"), ("duplicate", "duplicates")])
def test_a_source_that_rots(tmp_path: Path, outcome: str, group: str) -> None:
    before = [Image(f"lost{number}", outcome=outcome) for number in range(5)]
    lost = [Image(f"rotten{number}", outcome=outcome) for number in range(150)]
    found = drift(tmp_path, photos("new", 150, 2), others=(before, lost))
    assert (group, "new") in exceeded(found)
    assert exceeded(found) <= {(group, "new"), (group, "all")}
    (figure,) = [one for one in found.exceeded if one.scope == "new"]
    assert (figure.before, figure.after, figure.num_after) == ("0.3 %", "50.0 %", 300)


def test_filtered_inputs_do_not_count(tmp_path: Path) -> None:
    left_out = [Image(f"left{number}", outcome="filtered") for number in range(900)]
    found = drift(tmp_path, photos("new", 50, 2), others=([], left_out))
    assert {figure.num_after for figure in found.figures if figure.split is None} == {50, 1550}


def test_a_file_that_was_broken_since_is_new(tmp_path: Path) -> None:
    old = photos("old", 400, 1)
    first = indexed_version(tmp_path, 1, {"train-0": old})
    broken = [Image(image.name + "!", outcome="quarantined") for image in old[:100]]
    second = indexed_version(tmp_path, 2, {"train-1": old[100:]}, broken)
    found = measure(first, second, DriftLimits())
    assert ("quarantine", "new") in exceeded(found)
    assert not [figure for figure in found.figures if figure.split and figure.scope == "new"]


def test_images_that_move_to_another_shard_are_not_new(tmp_path: Path) -> None:
    old = photos("old", 300, 1)
    first = indexed_version(tmp_path, 1, {"train-0": old})
    new = photos("new", 30, 2)
    found = measure(first, indexed_version(tmp_path, 2, {"train-9": [*new, *old]}), DriftLimits())
    assert {figure.num_after for figure in found.figures if figure.scope == "new" and figure.split} == {30}


def test_splits_are_compared_with_themselves(tmp_path: Path) -> None:
    dark = photos("dark", 300, 3, lambda _: {"pixel_mean": [20.0] * 3}, split="test")
    old = photos("old", 300, 1)
    first = indexed_version(tmp_path, 1, {"train-0": old, "test-0": dark})
    more = photos("more", 300, 4, lambda _: {"pixel_mean": [20.0] * 3}, split="test")
    second = indexed_version(tmp_path, 2, {"train-0": old, "test-0": dark, "test-1": more})
    assert exceeded(measure(first, second, DriftLimits())) == set()


def test_targets_are_compared_by_name(tmp_path: Path) -> None:
    """Numbers are read from the column ``targets``, whose names the manifest has."""
    import pyarrow as pa

    from shardmill.infra.dataset.drift.population import Population
    from shardmill.infra.format.known_features import targets_feature

    version = indexed_version(
        tmp_path, 1, {"train-0": photos("old", 4, 1)}, label_kind="targets", format_version=3, classes=[],
        extra_features=[targets_feature(2, "age, weight")],
    )  # fmt: skip
    rows = pa.table({"label": pa.array([-1, -1], pa.int32()), "targets": [[30.0, -1.0], [40.0, 2.5]]})
    population = Population()
    population.add(rows, version.manifest)
    assert {name: int(counts.sum()) for name, counts in population.histograms.items()} == {
        "target age": 2,
        "target weight": 2,
    }


def test_populations_add_up(tmp_path: Path) -> None:
    whole, parts = photos("p", 300, 1), {}
    for at in range(3):
        parts[f"part-{at}"] = whole[at * 100 : at * 100 + 100]
    split = photos("more", 50, 2)
    one = measure(
        indexed_version(tmp_path / "a", 1, {"all": whole}),
        indexed_version(tmp_path / "a", 2, {"all": whole, "new": split}),
        DriftLimits(),
    )
    other = measure(
        indexed_version(tmp_path / "b", 1, parts),
        indexed_version(tmp_path / "b", 2, {"together": [*whole, *split]}),
        DriftLimits(),
    )
    assert one == other
