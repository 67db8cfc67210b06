"""A dry run writes nothing, and foresees what a run brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.infra.format.contract import SPLITS
from tests.samples.images.photos import make_photos
from tests.samples.preparing.prepared import prepare_here, prepared_here


def test_dry_run_writes_nothing_and_foresees_the_splits(messy: Path, tmp_path: Path) -> None:
    foreseen = prepared_here(messy, tmp_path / "root", "--dry-run", "--failure-budget", "0.5")
    assert not (tmp_path / "root").exists()
    assert foreseen["classes"] == {"cat": 18, "dog": 11}
    assert (foreseen["num_inputs"], foreseen["num_filtered"], foreseen["num_quarantined"]) == (34, 4, 1)
    assert sum(split["num_examples"] for split in foreseen["splits"].values()) == 29
    assert set(foreseen["splits"]) == set(SPLITS)
    assert foreseen["disk_bytes"] > 29 * 176

    told = prepare_here(messy, tmp_path / "root", "--dry-run")
    assert "nothing was written" in told.stdout
    assert "18  cat" in told.stdout


def test_dry_run_is_close_to_the_run_where_nothing_is_lost(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 33, "b": 17})
    foreseen = prepared_here(source, tmp_path / "root", "--dry-run", "--set", "shards.num_shards=2")
    done = prepared_here(source, tmp_path / "root", "--set", "shards.num_shards=2")
    for split in SPLITS:
        for key in ("num_examples", "num_shards", "class_counts"):
            assert foreseen["splits"][split][key] == done["splits"][split][key]
        assert foreseen["splits"][split]["num_bytes"] == pytest.approx(
            done["splits"][split]["num_bytes"], rel=0.25
        )
