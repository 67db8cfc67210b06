"""The keys of a configuration model, with all that help says of each: type, bounds, default, description."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import likeness, plain_words
from shardmill.infra.settings.model import AlsoCalled, group_of, new_path


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that has a value of its own.

    Attributes:
        key: its dotted name within the section.
        kind: its type and its bounds, for people, with values in backquotes.
        default: its default, in the same way.
        description: what it does.
        also_called: other names that people know it by; empty for settings that few people change.
    """

    key: str
    kind: str
    default: str
    description: str
    also_called: tuple[str, ...] = ()

    @property
    def leaf(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]


def settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    """Yield the settings of a model, then those of its groups, in the order of the model."""
    for name, info in model.model_fields.items():
        if group_of(info) is None:
            yield _setting(f"{prefix}{name}", info)
    for name, info in model.model_fields.items():
        if (group := group_of(info)) is not None:
            yield from settings_of(group, f"{prefix}{name}.")


def _known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of all keys of a model and of the models in it, groups and items of lists among them."""
    keys = []
    for name, field in model.model_fields.items():
        keys.append(prefix + name)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                keys += _known_keys(kind, f"{prefix}{name}.")
    return keys


def is_known(model: type[BaseModel], path: Sequence[str]) -> bool:
    """Whether a model has a key, also by an old name. Any key in a mapping counts."""
    key, known = ".".join(new_path(model, path)), _known_keys(model)
    groups = {name.rpartition(".")[0] for name in known}
    return key in known or any(key.startswith(f"{name}.") for name in known if name not in groups)


def nested(values: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return settings as nested tables: ``{"image.size": 64}`` becomes ``{"image": {"size": 64}}``.

    Both forms may be mixed. The keys of a setting that is itself a table, such as names of classes, are kept.
    Paths become text.

    Raises:
        ConfigError: a key is no text, or a setting is given twice.
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise ConfigError(f"{key!r} is no name of a setting", "write names as text: 'image.size'")
        name, dot, rest = key.partition(".")
        info = model.model_fields.get(name)
        group = None if info is None else group_of(info)
        value = {rest: value} if dot else value
        if isinstance(value, Mapping) and (group is not None or info is None):
            value = nested(value, group or BaseModel)
        _add(found, name, os.fspath(value) if isinstance(value, os.PathLike) else value, key)
    return found


def _add(values: dict[str, Any], name: str, value: Any, key: str) -> None:
    """Add a setting, or the settings of a group to others of the same group."""
    if name not in values:
        values[name] = value
    elif isinstance(value, Mapping) and isinstance(values[name], Mapping):
        merged = dict(values[name])
        for inner, more in value.items():
            _add(merged, inner, more, f"{name}.{inner}")
        values[name] = merged
    else:
        raise ConfigError(f"the settings give {key!r} twice", "leave one out")


def _setting(key: str, info: FieldInfo) -> Setting:
    bounds = [_bound(item) for item in _metadata(info)]
    names = [item.names for item in info.metadata if isinstance(item, AlsoCalled)]
    text = info.description or ""
    opened = text[:1].upper() + text[1:] if text.split(" ", 1)[0].isalpha() else text
    return Setting(
        key=key,
        kind=", ".join([_name(info.annotation), *filter(None, bounds)]),
        default=_default(info),
        description=opened,
        also_called=names[0] if names else (),
    )


def _metadata(info: FieldInfo) -> list[Any]:
    """Bounds stand beside the field or, where it may be empty, inside the union."""
    inner = [item for part in get_args(info.annotation) for item in getattr(part, "__metadata__", ())]
    nested = [more for item in inner for more in getattr(item, "metadata", [item])]
    return [*info.metadata, *nested]


def _bound(item: object) -> str:
    match item:
        case annotated_types.Ge(ge=value):
            return f"≥ {value}"
        case annotated_types.Gt(gt=value):
            return f"> {value}"
        case annotated_types.Le(le=value):
            return f"≤ {value}"
        case annotated_types.Lt(lt=value):
            return f"< {value}"
    return ""


def _name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        return " or ".join("empty" if part is NoneType else _name(part) for part in get_args(annotation))
    if hasattr(annotation, "__metadata__"):
        return _name(annotation.__origin__)
    if origin is dict:
        return "table of {} to {}".format(*(_name(part) for part in get_args(annotation)))
    if origin is not None:
        inside = dict.fromkeys(_name(part) for part in get_args(annotation) if part is not Ellipsis)
        return f"list of {', '.join(inside)}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a table"
    name = str(annotation.__name__)
    return {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}.get(name, name)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list | set | frozenset):
        return ", ".join(f"`{item}`" for item in value) or "empty"
    return f"`{value}`" if value not in ("", {}) else "empty"


_NEAR = 0.72  # similarity from which a setting is worth a suggestion
_LESS = 0.12  # penalty of a match by the last part of the key alone
_SHOWN = 2


@dataclass(frozen=True, slots=True)
class Near:
    """A setting that resembles a key.

    Attributes:
        setting: the setting.
        likeness: from 0 to 1, where names of both are the same.
    """

    setting: Setting
    likeness: float


def near_settings(key: str, model: type[BaseModel]) -> list[Near]:
    """Return the settings that a key may stand for, the likeliest first."""
    found = [Near(setting, _likeness(key, setting)) for setting in settings_of(model)]
    near = [each for each in found if each.likeness >= _NEAR]
    return sorted(near, key=_rank)


def remedy_for(
    key: str, model: type[BaseModel], prefix: str = "", elsewhere: Mapping[str, type[BaseModel]] | None = None
) -> str:
    """Say what to write in place of a key that a model does not have.

    Args:
        key: the dotted key.
        model: the model.
        prefix: stands before the keys that are suggested.
        elsewhere: models of other sections, by the name of the section.
    """
    own = near_settings(key, model)
    others = {section: near_settings(key, other) for section, other in (elsewhere or {}).items()}
    homes = [section for section, other in (elsewhere or {}).items() if is_known(other, key.split("."))]
    note = f" ({key} is a setting of {homes[0]})" if homes else ""
    if own:
        return f"did you mean {_quoted(own, prefix)}?{note}"
    if homes:
        return f"{key} is a setting of {homes[0]}, not of this command"
    for section, near in others.items():
        if near:
            return f"did you mean {_quoted(near, '')}, a setting of {section}?"
    group = key.rpartition(".")[0]
    known = [name for name in _known_keys(model) if name.rpartition(".")[0] == group]
    listed = f"known keys: {', '.join(known)}; " if known else ""
    return f"{listed}search them: shardmill settings {''.join(plain_words(key)[-1:])}".rstrip()


def _quoted(near: list[Near], prefix: str) -> str:
    """The first settings; more than one only if no other is as likely."""
    best = [each for each in near if _rank(each)[:2] == _rank(near[0])[:2]]
    return " or ".join(repr(prefix + each.setting.key) for each in best[:_SHOWN])


def _rank(near: Near) -> tuple[float, bool, int]:
    return (-round(near.likeness, 2), not near.setting.also_called, near.setting.key.count("."))


def _likeness(key: str, setting: Setting) -> float:
    group, _, last = key.rpartition(".")
    names = {setting.leaf, *setting.also_called}
    path = likeness(key, setting.key)
    # By the last part alone, less the more the groups differ.
    less = 0.0 if setting.key.rpartition(".")[0] == group else _LESS * (1 - path)
    parts = max(likeness(last, name) for name in names) - less if group else 0.0
    return max(parts, path, *(likeness(key, name) for name in names))
