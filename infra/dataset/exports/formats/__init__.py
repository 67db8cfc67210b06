"""The formats of ``shardmill export``: one module a format, with one object ``FORMAT``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from shardmill.infra.dataset.exports.plan import Part, Plan
from shardmill.infra.dataset.exports.reading import Batch
from shardmill.infra.dataset.exports.target import FileMade, PartFiles
from shardmill.infra.errors import UsageError
from shardmill.infra.near_names import near_miss
from shardmill.infra.storage.filesystem import Storage

FORMATS = ("tfds", "webdataset", "parquet", "huggingface", "array_record", "folder")


class Format(Protocol):
    """Writes the records of a version in one form. It is stateless, and several threads use it."""

    def check(self, plan: Plan) -> None:
        """Check before anything is written that this version can be exported.

        Raises:
            UsageError: the format cannot hold it. EnvironmentFault: a library is not installed.
        """

    def links(self, plan: Plan, destination: Storage) -> bool:
        """Tell whether the parts will be links to the version's own shards."""

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        """Write the files of a part; return the number of its records."""

    def describe(self, plan: Plan, parts: Sequence[FileMade]) -> dict[str, bytes]:
        """Path -> content of the files that describe the whole export."""


def format_named(name: str) -> Format:
    """Return the format of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"there is no export format {name!r}", near_miss(name, FORMATS))
    return cast(Format, importlib.import_module(f"{__name__}.{name}").FORMAT)


class PlainFormat:
    """The common traits of most formats: they hold every version, never link, and need no description."""

    def check(self, plan: Plan) -> None:
        """See ``Format``."""

    def links(self, plan: Plan, destination: Storage) -> bool:
        """See ``Format``."""
        return False

    def describe(self, plan: Plan, parts: Sequence[FileMade]) -> dict[str, bytes]:
        """See ``Format``."""
        return {}
