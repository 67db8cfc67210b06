"""plugins: list what other distributions add by entry points, and why some of it cannot be used."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from typing import Final

from shardmill.beam_jobs.config import known_kinds
from shardmill.flows.cli import options, output
from shardmill.infra.dataset.exports import formats
from shardmill.infra.errors import EnvironmentFault, ShardmillError
from shardmill.infra.near_names import near_miss
from shardmill.infra.plugins import Plugin, Plugins, provider_of
from shardmill.training.augment import settings as augmentations
from shardmill.training.models import names as models

GROUPS: Final = (known_kinds.PLUGINS, models.PLUGINS, augmentations.PLUGINS, formats.PLUGINS)
_NONE = """No plugins are installed. One is an entry point of a distribution, in its pyproject.toml:
  [project.entry-points."shardmill.models"]
  my_model = "my_package.my_model"
The groups are {}; see docs/add-a-source-kind.md#as-a-plugin"""


@dataclass(frozen=True, slots=True)
class _Row:
    group: str
    name: str
    distribution: str
    version: str
    value: str
    state: str  # ready, refused (its name or value), broken, or missing (a library of an extra)
    reason: str  # empty if it is ready


def plugins(json_output: options.Json = False) -> None:
    """List the installed plugins, and what is wrong with them.

    Each is imported to see whether it works.

    Examples:
      shardmill plugins
      shardmill plugins --json
    """
    with output.nothing_on_stdout():
        rows = [_row(group, plugin) for group in GROUPS for plugin in group.installed()] + _astray()
    if json_output:
        output.print_json({"plugins": [asdict(row) for row in rows]})
    elif not rows:
        output.say(*_NONE.format(", ".join(group.group for group in GROUPS)).splitlines())
    else:
        columns = ["group", "name", "distribution", "version", "state"]
        output.print_table("", columns, [[getattr(row, name) for name in columns] for row in rows])
        output.say(*(f"{row.group}: {row.name} is {row.state}: {row.reason}" for row in rows if row.reason))


def _astray() -> list[_Row]:
    """Return the entry points of groups that do not exist."""
    known = [group.group for group in GROUPS]
    astray = [name for name in entry_points().groups if name.startswith("shardmill.") and name not in known]
    return [
        _Row(name, point.name, *provider_of(point), point.value, "refused",
             f"there is no group {name}; {near_miss(name, known)}")
        for name in sorted(astray)
        for point in entry_points(group=name)
    ]  # fmt: skip


def _row(group: Plugins, plugin: Plugin) -> _Row:
    state, reason = "refused" if plugin.refusal else "ready", plugin.refusal
    try:
        if not plugin.refusal:
            plugin.load_function()
    except EnvironmentFault as error:
        state, reason = "missing", str(error).removeprefix(f"{plugin.setting}: ")
    except ShardmillError as error:
        state, reason = "broken", error.message.removeprefix(f"{plugin.setting} cannot be used: ")
    return _Row(group.group, plugin.name, plugin.distribution, plugin.version, plugin.value, state, reason)
