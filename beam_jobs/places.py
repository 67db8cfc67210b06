"""Where the source and the folders of Shardmill lie to each other: neither may swallow the other.

Places are compared as text: the real path of what lies on this machine, the URI of anything else.
"""

from __future__ import annotations

from pathlib import Path

from infra.errors import UsageError
from infra.locations import default_runs
from infra.names import uri_of
from infra.storage import Storage


def place_of(location: str) -> str:
    """The real path of a local folder, or the URI of another."""
    storage = Storage.at(location)
    local = storage.local_path()
    return str(local.resolve()) if local is not None else storage.uri


def is_within(place: str, folder: str) -> bool:
    """Whether a place is a folder or lies below it."""
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def folders_of_ours(source: str, root: str, dataset: str) -> list[str]:
    """The places within a source that are no part of it: the datasets, and the runs of trainings.

    Args:
        source: place of the source.
        root: folder of the datasets, as the user gave it.
        dataset: name of the dataset that the source becomes.

    Raises:
        UsageError: the source is the folder of the datasets, or lies where the dataset is written.
    """
    datasets, own = place_of(root), place_of(f"{root.rstrip('/')}/{dataset}")
    if is_within(source, own):
        raise UsageError(
            f"the source {uri_of(source)} lies in the folder of the dataset {dataset} ({own})",
            "give another --root: Shardmill writes there, and never into a source",
        )
    if source == datasets:
        raise UsageError(
            f"the source {uri_of(source)} is the folder of the datasets itself",
            "give another --root: a folder beside the source, or a new one within it",
        )
    found = [folder for folder in dict.fromkeys((datasets, own)) if is_within(folder, source)]
    runs = place_of(default_runs())
    if is_within(runs, source) and any(Path(runs).glob("*/run.json")):
        found.append(runs)
    return found
