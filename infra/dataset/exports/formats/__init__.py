"""The formats of ``shardmill export``: one module a format, with one object ``FORMAT``, or a plugin."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from shardmill.infra.dataset.exports import FORMATS
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan
from shardmill.infra.dataset.exports.target import FileMade, PartFiles
from shardmill.infra.errors import UsageError
from shardmill.infra.near_names import near_miss
from shardmill.infra.plugins import Plugin, Plugins
from shardmill.infra.storage.filesystem import Storage


class Format:
    """Writes the records of a version in one form. It is stateless, and several threads use it.

    This one holds every version with images of 8 bits in grey or RGB, never links, and needs no description.

    Attributes:
        holds_samples: it was compared with other readers on images of any depth and number of channels.
    """

    holds_samples: ClassVar[bool] = False

    def check(self, plan: Plan) -> None:
        """Check before anything is written that this version can be exported.

        Raises:
            UsageError: the format cannot hold it. EnvironmentFault: a library is not installed.
        """

    def links(self, plan: Plan, destination: Storage) -> bool:
        """Tell whether the parts will be links to the version's own shards."""
        return False

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        """Write the files of a part; return the number of its records."""
        raise NotImplementedError

    def describe(self, plan: Plan, parts: Sequence[FileMade]) -> dict[str, bytes]:
        """Path -> content of the files that describe the whole export."""
        return {}


def _problem(found: Any) -> str | None:
    """Return why an object is no format; None: it is one."""
    if not isinstance(found, Format):
        return f"an object of type {type(found).__name__} is no {__name__}.Format"
    return f"{type(found).__name__} lacks write" if type(found).write is Format.write else None


PLUGINS: Final = Plugins(
    group="shardmill.exports",
    setting="the format {!r}",
    page="docs/export.md",
    default="FORMAT",
    is_built_in=FORMATS.__contains__,
    problem=_problem,
)


def format_named(name: str) -> tuple[Format, Plugin | None]:
    """Return the format of this name, and the plugin that it comes from.

    Behind a dash stands one of the ``VARIANTS`` that the module of a format names: ``yolo-pose``.

    Raises:
        UsageError: there is none, or the plugin cannot be used.
    """
    if name in FORMATS:
        return importlib.import_module(f"{__name__}.{name}").FORMAT, None
    base, _, variant = name.partition("-")
    if base in FORMATS:
        variants = getattr(importlib.import_module(f"{__name__}.{base}"), "VARIANTS", {})
        if variant in variants:
            return variants[variant], None
    plugin = PLUGINS.find(name)
    if plugin is None:
        raise UsageError(f"there is no export format {name!r}", near_miss(name, [*FORMATS, *PLUGINS.names()]))
    return plugin.load_function(), plugin
