"""Check that the source and the folders that Shardmill writes do not overlap.

Places are compared as text: the real path of a local folder, the URI of any other.
"""

from __future__ import annotations

from pathlib import Path

from shardmill.infra.errors import UsageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import below, default_runs
from shardmill.infra.storage.names import uri_of


def place_of(location: str) -> str:
    """Return the real path of a local folder, or the URI of any other."""
    storage = Storage.at(location)
    local = storage.local_path()
    return str(local.resolve()) if local is not None else storage.uri


def is_within(place: str, folder: str) -> bool:
    """Return whether a place is a folder or lies below it."""
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def folders_of_ours(source: str, root: str, dataset: str) -> list[str]:
    """Find the folders within a source that Shardmill writes: datasets and training runs.

    Args:
        source: place of the source.
        root: folder of the datasets, as the user gave it.
        dataset: name of the dataset that the source becomes.

    Raises:
        UsageError: the source is the folder of the datasets, or lies where the dataset is written; or it is
            a dataset or a training run.
    """
    datasets, own = place_of(root), place_of(below(root, dataset))
    if is_within(source, own):
        raise UsageError(
            f"the source {uri_of(source)} is in the folder of the dataset {dataset} ({own})",
            "give another --root: Shardmill writes there, and never into a source",
        )
    if source == datasets:
        raise UsageError(
            f"the source {uri_of(source)} is the folder of the datasets itself",
            "give another --root: a folder beside the source, or a new one within it",
        )
    if any(Path(source).glob("manifests/[0-9]*.json")):
        raise UsageError(
            f"the source {source} is a dataset of Shardmill, no folder of images",
            f"train on it: shardmill train {Path(source).name} --root {Path(source).parent}",
        )
    if (Path(source) / "run.json").is_file():
        raise UsageError(f"the source {source} is a training run, no folder of images", "give such a folder")
    found = [folder for folder in dict.fromkeys((datasets, own)) if is_within(folder, source)]
    runs = place_of(default_runs())
    if is_within(runs, source) and any(Path(runs).glob("*/run.json")):
        found.append(runs)
    return found
