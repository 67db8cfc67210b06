"""The table [train.augment]: the fields of every augmentation (``shardmill.training.augment.kinds``).

A plugin of the group ``shardmill.augmentations`` has a table of its name there, with its own fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NoReturn

from pydantic import ConfigDict, ValidationError, create_model, model_validator

from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.near_names import near_names
from shardmill.infra.plugins import Plugin, Plugins
from shardmill.infra.preparation import SampleKind
from shardmill.infra.settings import Settings, validate
from shardmill.training.augment.kind import (
    STAGES,
    BatchAugmentation,
    ImageAugmentation,
    WindowAugmentation,
    kinds,
)


# Pydantic lists the fields of the last base first.
class AugmentSettings(*(kind.Fields for kind in reversed(kinds())), Settings):  # type: ignore[misc]
    """How a training example may differ from its stored image."""

    model_config = ConfigDict(extra="allow")  # the tables of plugins, and nothing else

    @model_validator(mode="before")
    @classmethod
    def _with_plugins(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        own = {name: value for name, value in values.items() if name in cls.model_fields}
        tables = {name: value for name, value in values.items() if name not in own and value is not None}
        found = {name: plugin for name in tables if (plugin := PLUGINS.find(name)) is not None}
        if len(found) < len(tables):
            _refuse({name: value for name, value in tables.items() if name not in found})
        return own | {name: _table(plugin, tables[name]) for name, plugin in found.items()}

    @property
    def plugins(self) -> list[Plugin]:
        """The plugins that have a table here."""
        return [plugin for name in self.model_extra or () if (plugin := PLUGINS.find(name)) is not None]

    @property
    def window(self) -> WindowAugmentation[Any] | None:
        """The augmentation that chooses windows; None: all that ``data.fit`` shows."""
        return next(iter(self._on(WindowAugmentation)), None)

    @property
    def of_images(self) -> list[ImageAugmentation[Any]]:
        """The augmentations of single images that are on, in turn."""
        return self._on(ImageAugmentation)

    @property
    def of_batches(self) -> list[BatchAugmentation[Any]]:
        """The augmentations of whole batches that are on, in turn."""
        return self._on(BatchAugmentation)

    @property
    def mixes(self) -> bool:
        """Whether examples and their labels are mixed in pairs."""
        return any(one.mixes for one in self.of_batches)

    def _made(self) -> list[Any]:
        """Return all augmentations, on or not, each stage in turn."""
        made: list[Any] = [kind(self) for kind in kinds()]
        made += [_kind(name)(table) for name, table in (self.model_extra or {}).items()]
        return sorted(made, key=lambda one: one.turn)

    def _on(self, stage: Any) -> list[Any]:
        return [one for one in self._made() if isinstance(one, stage) and one.is_on]

    def check_objects_follow(self, *, points: bool = False) -> None:
        """Check that boxes and masks can follow all augmentation, and ``points`` of other shapes.

        Raises:
            ConfigError: one of whole batches is on, or another that they cannot follow.
        """
        made = self._made()
        if points and (found := [one.name for one in self.of_images if not one.moves_points()]):
            raise ConfigError(
                f"{_listed(found)} moves boxes or masks, and does not say how points move",
                "turn it off, or give its class move_points (shardmill.training.augment.kind)",
            )
        if found := [one.name for one in made if one.is_on and not one.objects_follow]:
            follow = ", ".join(one.name for one in made if one.objects_follow)
            raise ConfigError(
                f"{_listed(found)} would move or mix images without their boxes and masks",
                f"turn it off; boxes and masks follow {follow}",
            )

    def check_samples(self, samples: SampleKind) -> None:
        """Check that all augmentation has a meaning for images of such samples.

        Raises:
            ConfigError: one has none.
        """
        if samples.is_common:
            return
        made = self._made()
        if found := [name for one in made if one.is_on and (name := one.unfit(samples))]:
            fit = ", ".join(one.name for one in made if one.name and not one.unfit(samples))
            raise ConfigError(
                f"{_listed(found)} has no meaning for images of {samples}",
                f"turn it off; such images can be augmented by {fit}",
            )

    def without_batched(self) -> AugmentSettings:
        """Return these settings with the augmentations of whole batches turned off."""
        left_out: set[str] = set()
        for one in self.of_batches:
            left_out |= {one.plugin} if one.plugin else one.Fields.model_fields.keys()
        return AugmentSettings.model_validate({name: value for name, value in self if name not in left_out})

    def check_pairs(self, rows: int) -> None:
        """Check that each row of a device has a partner, where examples are mixed in pairs.

        Args:
            rows: the number of rows of a batch that one device takes.

        Raises:
            ConfigError: it is odd.
        """
        if self.mixes and rows % 2:
            names = _listed([one.name for one in self.of_batches if one.mixes])
            raise ConfigError(
                f"examples are mixed in pairs ({names}), and a device takes {rows} of each batch",
                "choose a data.global_batch_size that gives each device an even number of rows",
            )

    def refuse_batched(self, why: str, remedy: str) -> None:
        """Refuse augmentation of whole batches.

        Args:
            why: the reason, which the names of the settings follow.
            remedy: what the caller can do.

        Raises:
            UsageError: an augmentation of whole batches is on.
        """
        if found := [one.name for one in self.of_batches]:
            raise UsageError(f"{why} ({_listed(found)})", remedy)


def _is_ours(name: str) -> bool:
    return name in AugmentSettings.model_fields or hasattr(AugmentSettings, name)


def _problem(found: Any) -> str | None:
    """Return why an object is no augmentation; None: it is one."""
    if not (isinstance(found, type) and issubclass(found, STAGES)):
        wanted = " or ".join(stage.__name__ for stage in STAGES)
        return f"it is no class derived from {wanted} (shardmill.training.augment.kind)"
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        return f"{found.__name__} lacks {', '.join(missing)}"
    fields = getattr(found, "Fields", None)
    if not (isinstance(fields, type) and issubclass(fields, Settings)):
        return f"{found.__name__}.Fields is no class that derives from shardmill.infra.settings.Settings"
    if not isinstance(getattr(found, "turn", None), int):
        return f"{found.__name__}.turn is no whole number"
    return None


PLUGINS: Final = Plugins(
    group="shardmill.augmentations",
    setting="augment.{}",
    page="docs/augmentation.md",
    default="",
    is_built_in=_is_ours,
    problem=_problem,
)


def _refuse(unknown: Mapping[str, Any]) -> NoReturn:
    """Refuse keys as every table does, or suggest a plugin if one has the nearest name.

    Raises:
        ConfigError: the name of a plugin is near. ValidationError: none is.
    """
    for name in unknown:
        near = near_names(name, [*AugmentSettings.model_fields, *PLUGINS.names()])
        if near and near[0] not in AugmentSettings.model_fields:
            raise ConfigError(
                f"unknown key 'augment.{name}'", f"did you mean the plugin 'augment.{near[0]}'?"
            )
    lines: Any = [
        {"type": "extra_forbidden", "loc": (name,), "input": value} for name, value in unknown.items()
    ]
    raise ValidationError.from_exception_data("AugmentSettings", lines)


def _table(plugin: Plugin, value: Any) -> Settings:
    """Return the table of a plugin as the model of its fields.

    Raises:
        ConfigError: a key or value of the table is wrong, or the plugin cannot be used.
    """
    key = f"augment.{plugin.name}"
    fields: Any = {key: (plugin.load_function().Fields, ...)}
    model = create_model("AugmentSettings", __base__=Settings, **fields)
    table: Settings = getattr(validate(model, {key: value}, where=f"[{key}]"), key)
    return table


@cache
def _kind(name: str) -> Any:
    """Return the class of a plugin's augmentation, which knows its name.

    Raises:
        ConfigError: there is no such plugin here, or it cannot be used.
    """
    plugin = PLUGINS.find(name)
    if plugin is None:
        raise ConfigError(
            f"augment.{name}: no plugin of this name is installed", "shardmill plugins lists them"
        )
    kind = plugin.load_function()
    return type(kind.__name__, (kind,), {"plugin": name, "__module__": kind.__module__})


def _listed(names: list[str]) -> str:
    return " and ".join(names)
