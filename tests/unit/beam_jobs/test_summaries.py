"""The lines that prepare prints about a version."""

from __future__ import annotations

from shardmill.beam_jobs.summaries import split_lines, version_lines


def test_a_split_is_counted_in_words_in_even_columns() -> None:
    splits = {"train": {"num_examples": 1200, "num_shards": 2, "num_bytes": 5 << 20}}
    splits["test"] = {"num_examples": 1, "num_shards": 1, "num_bytes": 9}
    assert list(split_lines(splits)) == [
        "  train          1,200 examples      2 shards     5.0 MiB",
        "  test                1 example       1 shard         9 B",
    ]


def test_the_summary_counts_in_words_and_tells_of_crossing_duplicates() -> None:
    outcome = {
        "dataset": "d", "version": 1, "unchanged": True, "source": "/s", "report": None, "splits": {},
        "num_inputs": 1, "num_records": 1, "num_duplicates": 0, "num_filtered": 0, "num_quarantined": 0,
        "quarantine": {}, "num_label_conflicts": 1, "num_cross_split_duplicates": 2,
    }  # fmt: skip
    _, counts, conflicts, crossing = version_lines(outcome)
    assert counts == "  1 input = 1 record + 0 duplicates + 0 filtered + 0 quarantined"
    assert "1 image has the same bytes under different labels" in conflicts
    assert "2 duplicates repeat records of another given split" in crossing


def test_the_summary_tells_of_groups_and_leaks() -> None:
    outcome = {
        "dataset": "d", "version": 1, "unchanged": True, "source": "/s", "report": None, "splits": {},
        "num_inputs": 1, "num_records": 1, "num_duplicates": 0, "num_filtered": 0, "num_quarantined": 0,
        "quarantine": {}, "num_label_conflicts": 0, "num_cross_split_duplicates": 0,
        "near_duplicates": {"num_records": 5, "num_groups": 2, "num_conflicts": 1},
        "leaks": {"near_duplicate_groups": 1, "key_groups": 1, "dropped_from_train": 1},
        "settings_changed": {"image.size": ("256", "64")},
    }  # fmt: skip
    _, _, changed, size, alike, leaks = version_lines(outcome)
    assert (changed, size) == ("  1 setting changed since the version before:", "    image.size: 256 -> 64")
    assert "5 records look the same, in 2 groups, 1 group under several labels" in alike
    assert "2 groups are divided among the splits; 1 record of train left out" in leaks
