"""The parameters of the flows: what the form of the Prefect UI shows, bounds and checks.

Descriptions come from the docstrings of the flows. Prefect loses the bounds of a bare default
(``x: int = Field(ge=1)``), hence ``Annotated`` types. The server checks parameters against their schema
before it makes a run of them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.errors import UsageError
from infra.locations import absolute_path, default_root, default_runs
from infra.names import is_text, uri_of

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
]
DatasetRef = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(@([0-9]+|latest))?$",
        examples=["photos", "photos@3"],
    ),
]


def absolute(path_or_uri: str) -> str:
    """A path made absolute; a URI as it is.

    Raises:
        UsageError: its bytes are not UTF-8, and Prefect keeps parameters as JSON text.
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
    return absolute(root or default_root())


def runs_or_default(runs: str | None) -> str:
    """The folder of the training runs as an absolute path or URI."""
    return absolute(runs or default_runs())
