"""The figures of key points, against pycocotools and sums written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from shardmill.training.metrics.keypoints import SIGMA, KeyPointsTally, measured, resampled

IMAGES, POINTS, SIDE = 30, 5, 1000  # COCO adds a unit to areas, which then does not matter


def scenes(seed: int) -> tuple[Any, Any]:
    """Labels [n, 3 K + 4] and rows of predictions; some images have no annotated point."""
    chance = np.random.default_rng(seed)
    corner, sides = chance.uniform(0, 0.5, (IMAGES, 2)), chance.uniform(0.1, 0.5, (IMAGES, 2))
    points = corner[:, None] + chance.random((IMAGES, POINTS, 2)) * sides[:, None]
    seen = chance.integers(0, 3, (IMAGES, POINTS, 1))
    seen[::7] = 0
    found = points + chance.normal(0, 0.03, points.shape)
    labels = np.concatenate([points * (seen > 0), seen], axis=-1).reshape(IMAGES, -1)
    labels = np.concatenate([labels, corner, corner + sides], axis=1).astype(np.float32)
    rows = {"points": found.reshape(IMAGES, -1).astype(np.float32), "losses": chance.random(IMAGES)}
    return labels, rows


def similarities(labels: Any, rows: Any) -> list[float]:
    """What pycocotools says of each image with annotated points."""
    annotations, results = [], []
    for number, (label, found) in enumerate(zip(labels, rows["points"], strict=True), 1):
        points, (top, left, bottom, right) = label[:-4].reshape(-1, 3), label[-4:] * SIDE
        box, area = [left, top, right - left, bottom - top], (right - left) * (bottom - top)
        keypoints = np.stack([points[:, 1] * SIDE, points[:, 0] * SIDE, points[:, 2]], 1).ravel().tolist()
        common = {"id": number, "image_id": number, "category_id": 1, "bbox": box, "area": area}
        known = int((points[:, 2] > 0).sum())
        annotations.append({**common, "iscrowd": 0, "num_keypoints": known, "keypoints": keypoints})
        places = found.reshape(-1, 2) * SIDE
        values = np.stack([places[:, 1], places[:, 0], np.ones(POINTS)], 1).ravel().tolist()
        results.append({"image_id": number, "category_id": 1, "keypoints": values, "score": 1.0})
    images = [{"id": number + 1, "width": SIDE, "height": SIDE} for number in range(IMAGES)]
    truth = COCO()
    truth.dataset = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "a"}]}
    truth.createIndex()
    evaluation = COCOeval(truth, truth.loadRes(results), "keypoints")
    evaluation.params.kpt_oks_sigmas = np.full(POINTS, SIGMA)
    evaluation.evaluate()
    with_points = [one["id"] for one in annotations if one["num_keypoints"]]
    return [float(evaluation.ious[number, 1][0, 0]) for number in with_points]


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_pycocotools_and_of_sums(seed: int) -> None:
    labels, rows = scenes(seed)
    tally = KeyPointsTally()
    for start in range(0, IMAGES, 7):
        part = slice(start, start + 7)
        tally.add(labels[part], {name: values[part] for name, values in rows.items()})
    figures = tally.evaluation().figures()
    assert figures["keypoint_similarity"] == pytest.approx(np.mean(similarities(labels, rows)), rel=1e-6)
    distances = []
    for label, found in zip(labels, rows["points"], strict=True):
        longest = max(label[-2] - label[-4], label[-1] - label[-3])
        for (y, x, seen), (top, left) in zip(label[:-4].reshape(-1, 3), found.reshape(-1, 2), strict=True):
            if seen:
                distances.append(np.hypot(y - top, x - left) / longest)
    assert figures["correct_keypoints"] == pytest.approx(np.mean(np.array(distances) <= 0.1))
    assert figures["keypoint_error"] == pytest.approx(np.mean(distances), rel=1e-5)
    assert figures["loss"] == pytest.approx(rows["losses"].mean())
    assert tally.evaluation().num_examples == IMAGES


def test_resampled_figures_are_those_of_the_drawn_records() -> None:
    labels, rows = scenes(9)
    drawn = np.random.default_rng(0).integers(0, IMAGES, IMAGES)
    tally = KeyPointsTally()
    tally.add(labels[drawn], {name: values[drawn] for name, values in rows.items()})
    found = resampled(labels, rows)(np.bincount(drawn, minlength=IMAGES))
    assert found.figures() == pytest.approx(tally.evaluation().figures())


def test_nothing_annotated_counts_for_nothing() -> None:
    labels = np.zeros((2, 3 * POINTS + 4), np.float32)
    assert not measured(labels, np.full((2, 2 * POINTS), 0.5, np.float32)).any()
    assert KeyPointsTally().evaluation().figures() == {
        "correct_keypoints": 0, "keypoint_similarity": 0, "keypoint_error": 0, "loss": 0,
    }  # fmt: skip
