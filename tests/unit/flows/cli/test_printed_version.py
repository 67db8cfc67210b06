"""The output of ``shardmill show`` about a manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.flows.cli.datasets.print_version import print_version
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.known_features import OBJECT_FEATURES
from tests.samples.datasets.published import coloured, publish


@pytest.mark.parametrize(
    ("features", "words"),
    [([], "labels: several labels an image"), (list(OBJECT_FEATURES), "labels: objects in images")],
)
def test_boxes_are_told_from_several_labels(
    features: list[object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = publish(tmp_path, coloured({"train": {"a": 1}}))
    changes = {"label_kind": "multi", "extra_features": features}
    print_version(DatasetVersion(published.storage, published.manifest.model_copy(update=changes)))
    assert words in capsys.readouterr().out


def test_images_are_named_by_their_samples_and_stored_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = publish(tmp_path, coloured({"train": {"a": 1}}))
    image = {"encoding": "jpeg", "quality": 90, "depth": 16, "size": 64}
    changes = {"dtype": "uint16", "channels": 3, "image_encoding": "png", "config": {"image": image}}
    print_version(DatasetVersion(published.storage, published.manifest.model_copy(update=changes)))
    said = capsys.readouterr().out
    assert "images uint16 with 3 channels, png, depth 16, size 64" in said
    assert "jpeg" not in said
    assert "quality 90" not in said
