"""A table of 5,000 rows as people keep them becomes a balanced dataset with one command."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from shardmill.beam_jobs.reasons import REASONS
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.samples.preparing.prepared import prepared, rows
from tests.samples.sources.untidy_table import NO_CLASSES, make_untidy

CLOTHING = Path(__file__).parents[4] / "../shared/data/clothing"
FRACTIONS = {"train": 0.8, "validation": 0.1, "test": 0.1}


@pytest.mark.slow
@pytest.mark.skipif(not CLOTHING.is_dir(), reason=f"NOT checked: no shared photographs at {CLOTHING}")
def test_a_table_of_5000_rows_adds_up_and_is_balanced(tmp_path: Path) -> None:
    untidy = make_untidy(CLOTHING, tmp_path / "photos")
    root = tmp_path / "root"
    words = ["--source-kind", "auto", "--failure-budget", "0.1", "--set", "image.size=64"]
    words += ["--set", f"source.columns.drop_labels={list(NO_CLASSES)}"]
    made = prepared(untidy.table.parent, root, *words)
    version = Catalog(root).open("d")
    found = rows(version)
    assert Counter(row["reason"] or row["outcome"] for row in found.values()) == untidy.outcomes
    assert made["num_inputs"] == sum(untidy.outcomes.values()) == len(found)
    assert made["num_label_conflicts"] == untidy.num_conflicts
    assert version.manifest.classes == untidy.classes
    assert not verify(version).problems
    # Near-duplicates stay together, which moves a class by a record or two.
    of_class = {
        label: sum(split["class_counts"][label] for split in made["splits"].values())
        for label in untidy.classes
    }
    for name, split in made["splits"].items():
        for label, count in split["class_counts"].items():
            assert abs(count - FRACTIONS[name] * of_class[label]) <= 3, (name, label)
        counts = [shard.num_examples for shard in version.shards(name)]
        assert max(counts) - min(counts) <= 1
    page = Path(made["report"]).read_text(encoding="utf-8")
    assert [
        reason for reason in untidy.outcomes if reason in REASONS and REASONS[reason][0] not in page
    ] == []
