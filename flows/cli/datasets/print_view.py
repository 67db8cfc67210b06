"""Describe a view, and print it for people: its records by split and class."""

from __future__ import annotations

from typing import Any

from shardmill.flows.cli.datasets.print_version import print_classes
from shardmill.flows.cli.output import counted, print_table, say
from shardmill.infra.dataset.version import DatasetVersion


def describe(opened: DatasetVersion) -> dict[str, Any]:
    """Count the records of a view; JSON-able."""
    splits = {}
    for name, whole in opened.manifest.splits.items():
        counts = opened.count_classes(name)
        splits[name] = {
            "num_examples": opened.num_examples(name),
            "of_examples": whole.num_examples,
            "class_counts": counts,
        }
    return {
        "dataset": opened.name,
        "version": opened.version,
        **opened.describe_view(),
        "reference": opened.ref,
        "num_examples": sum(split["num_examples"] for split in splits.values()),
        "splits": splits,
        "location": opened.storage.uri,
    }


def print_view(opened: DatasetVersion, described: dict[str, Any]) -> None:
    """Print what ``describe`` found."""
    assert opened.view is not None
    whole = sum(split["of_examples"] for split in described["splits"].values())
    say(
        f"{opened.name}@{opened.version} where {opened.view.query}",
        f"a view of {counted(described['num_examples'], 'record')} of {whole:,}  in {opened.storage.uri}",
    )
    rows = [
        [name, split["num_examples"], split["of_examples"]] for name, split in described["splits"].items()
    ]
    print_table("Splits", ["split", "examples", "of the version"], rows)
    print_classes(
        opened.manifest.classes, {name: split["class_counts"] for name, split in described["splits"].items()}
    )
