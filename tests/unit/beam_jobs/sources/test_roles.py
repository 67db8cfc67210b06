"""Splits by the names of files and folders."""

from __future__ import annotations

import pytest

from shardmill.beam_jobs.sources.roles import split_of_name


@pytest.mark.parametrize(
    ("uri", "split"),
    [
        ("data/train-00000-of-00002.parquet", "train"),
        ("default/validation/0000.parquet", "validation"),
        ("t10k-images-idx3-ubyte.gz", "test"),
        ("Val.npz", "validation"),
        ("images_test.npy", "test"),
        ("train/part-1.parquet", "train"),
        ("train/test-1.parquet", "test"),
        ("train-and-test.parquet", None),
        ("train/train-and-test.parquet", None),
        ("trains/latest.parquet", None),
        ("", None),
    ],
)
def test_names(uri: str, split: str | None) -> None:
    assert split_of_name(uri) == split
