"""A version that differs too much from the one before: warned of, stopped before publishing, let pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.flows import cli
from shardmill.infra.codecs import encode_jpeg
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import DriftExceeded
from shardmill.infra.progress import subscribe
from tests.samples.images.photos import make_photos, picture, write
from tests.samples.preparing.prepared import run

STOP = {"drift": {"action": "stop"}}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "photos", {"cat": 60, "dog": 60})


def darken(source: Path) -> None:
    """Add forty images that were taken at night."""
    pictures = (encode_jpeg((picture(5000 + number) // 6).astype(np.uint8), 85) for number in range(40))
    write(source, {f"{'cat' if at % 2 else 'dog'}/night{at}.jpg": data for at, data in enumerate(pictures)})


def versions(root: Path) -> list[int]:
    return Catalog(root).versions("d")


def test_more_of_the_same_passes(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "root", **STOP)
    write(source, {f"cat/more{number}.jpg": encode_jpeg(picture(7000 + number), 85) for number in range(20)})
    write(source, {f"dog/more{number}.jpg": encode_jpeg(picture(8000 + number), 85) for number in range(20)})
    grown = run(source, tmp_path / "root", **STOP)
    assert grown["version"] == 2
    assert [figure for figure in grown["drift"]["figures"] if figure["exceeded"]] == []
    assert {figure["group"] for figure in grown["drift"]["figures"]} == {
        "classes", "sizes", "colours", "looks", "duplicates", "quarantine",
    }  # fmt: skip


def test_a_first_version_and_one_that_is_not_compared_have_no_figures(source: Path, tmp_path: Path) -> None:
    off = {"drift": {"action": "off"}}
    assert run(source, tmp_path / "root", **off)["drift"] is None
    darken(source)
    assert run(source, tmp_path / "root", **off)["drift"] is None
    page = Catalog(tmp_path / "root").open("d")
    assert 'id="drift"' not in page.storage.read_bytes(str(page.manifest.report)).decode()


def test_a_stopped_version_is_not_published_and_passes_without_encoding_again(
    source: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    run(source, root, **STOP)
    darken(source)
    for _ in range(2):
        with pytest.raises(
            DriftExceeded, match=r"d@2 would differ from d@1 .* brightness of new train"
        ) as error:
            run(source, root, **STOP)
        assert "--set drift.action=warn, or raise drift.colours" in str(error.value.remedy)
        assert versions(root) == [1]
    passed = run(source, root)
    assert (passed["version"], passed["num_encoded"]) == (2, 0)
    assert passed["reused"]["images"] == 40
    (figure,) = [
        one for one in passed["drift"]["figures"]
        if (one["title"], one["split"], one["scope"]) == ("brightness", "train", "new")
    ]  # fmt: skip
    assert figure["exceeded"]
    version = Catalog(root).open("d")
    page = version.storage.read_bytes(str(version.manifest.report)).decode()
    findings = page.partition('class="findings"')[2].partition("</ul>")[0]
    assert "The images differ from those of d@1 in" in findings
    assert "brightness of new train images" in page.partition('id="drift"')[2].partition("</section>")[0]


def test_a_warning_names_the_figures(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "root")
    darken(source)
    events: list[Any] = []
    unsubscribe = subscribe(events.append)
    try:
        assert run(source, tmp_path / "root")["version"] == 2
    finally:
        unsubscribe()
    warnings = [event["message"] for event in events if event.get("level") == "warning"]
    assert any("drift since d@1: brightness of new train images: median" in text for text in warnings)


@pytest.mark.slow
def test_diff_shows_the_figures(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    run(source, root)
    darken(source)
    run(source, root)
    capsys.readouterr()
    assert cli.run(["diff", "d", "--root", str(root)]) == 0
    assert "! brightness of new train images" in capsys.readouterr().out
    assert cli.run(["diff", "d", "--root", str(root), "--json"]) == 0
    drift = json.loads(capsys.readouterr().out)["drift"]
    assert (drift["before"], drift["after"]) == ("d@1", "d@2")
    assert ("brightness", "new") in {
        (one["title"], one["scope"]) for one in drift["figures"] if one["exceeded"]
    }


@pytest.mark.slow
def test_a_raised_limit_lets_the_version_pass(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "root")
    darken(source)
    settings: dict[str, Any] = {"drift": {"action": "stop", "colours": 1.0, "looks": 1.0, "sizes": 1.0}}
    assert run(source, tmp_path / "root", **settings)["version"] == 2


def test_the_settings_of_drift_change_no_digest(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "root")
    assert run(source, tmp_path / "root", **STOP)["unchanged"]
