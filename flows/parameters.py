"""The types of the flows' parameters, with the bounds that the form in the Prefect UI shows and checks.

Prefect takes the descriptions from the docstrings of the flows. It loses the bounds of a bare default (``x:
int = Field(ge=1)``), so the types are ``Annotated``. The server checks parameters before it creates a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shardmill.infra.errors import UsageError
from shardmill.infra.settings import WholeText
from shardmill.infra.storage.locations import absolute_path, default_root, default_runs, is_text, uri_of

Source = Annotated[
    str,
    Field(
        # A worker has no working folder that a relative path could mean.
        pattern=r"^(/|[A-Za-z][A-Za-z0-9+.-]*://)",
        examples=["/data/photos"],
    ),
]
DatasetName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=100,
        examples=["photos"],
    ),
    WholeText(),
]
DatasetRef = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(@([0-9]+|latest))?(\?.+| *;.+)?$",
        max_length=10_000,
        examples=["photos", "photos@3", "photos@3?width > 800", "photos@3; web@1"],
    ),
    WholeText(),
]

RunRef = Annotated[
    str,
    Field(
        # A name below the folder of the runs, or an alias: a form must not reach other folders.
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*(@[a-z][a-z0-9_-]*)?$",
        max_length=200,
        examples=["photos-v1-0123456789", "photos@production", "photos+web@production"],
    ),
    WholeText(),
]
AliasWord = Annotated[
    str,
    Field(
        pattern=r"^[a-z][a-z0-9_-]*$",
        max_length=50,
        examples=["production", "staging"],
    ),
    WholeText(),
]
# Forms show the kinds of a value by these titles, and by names of Python's types without them.
Unset = Annotated[None, Field(title="not set")]
OptionalFolder = Annotated[str, Field(title="text")] | Unset
Reason = Annotated[str, Field(max_length=500, examples=["asked for by the shop"])]


def absolute(path_or_uri: str) -> str:
    """The absolute path; a URI is returned unchanged.

    Raises:
        UsageError: The path is not UTF-8, and Prefect keeps parameters as JSON text.
    """
    if not is_text(path_or_uri):
        raise UsageError(
            f"{uri_of(path_or_uri)}: the path is not UTF-8 text, and Prefect keeps text",
            "give a link with a plain name in its place: ln -s FOLDER plain",
        )
    if "://" in path_or_uri:
        return path_or_uri
    return absolute_path(path_or_uri)


def root_or_default(root: str | None) -> str:
    """The folder of the datasets as an absolute path or URI."""
    return _folder(absolute(root or default_root()), "datasets", "--root")


def runs_or_default(runs: str | None) -> str:
    """The folder of the training runs as an absolute path or URI."""
    return _folder(absolute(runs or default_runs()), "training runs", "--runs")


def _folder(place: str, of: str, option: str) -> str:
    """Return the place of a folder, which need not exist yet.

    Raises:
        UsageError: it is a file.
    """
    if "://" not in place and Path(place).is_file():
        raise UsageError(f"the folder of the {of}, {place}, is a file", f"name a folder with {option}")
    return place
