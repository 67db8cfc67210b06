"""Validated configuration: TOML files, ``--set key=value`` and given values, in rising precedence.

A configuration is a frozen Pydantic model. Unknown keys are errors that suggest the near miss.
"""

from __future__ import annotations

import datetime
import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from infra.errors import ConfigError

SECTIONS = ("prepare", "train")


def _close_groups(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Let the JSON schema say that a group of settings may be null, so that forms show it closed."""
    for name in _groups(model):
        group = schema["properties"][name]
        reference = {"$ref": group.pop("$ref")} if "$ref" in group else {"allOf": group.pop("allOf")}
        group |= {"anyOf": [{"type": "null", "title": "defaults"}, reference], "default": None}


class Settings(BaseModel):
    """Base of all configuration models: frozen, no unknown keys; a group that is null has its defaults."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, json_schema_extra=_close_groups
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_the_default(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        groups = _groups(cls)
        return {name: value for name, value in values.items() if value is not None or name not in groups}


def _groups(model: type[BaseModel]) -> list[str]:
    """The names of the fields that are settings of their own."""
    return [
        name
        for name, field in model.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings)
    ]


class WholeText:
    """Marks text whose pattern ends in ``$``: no line feed may follow.

    Pydantic takes ``$`` for the end of the text. Prefect's server checks forms with Python's ``re``, which
    lets a line feed follow, so the schema of the form rules that out.
    """

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add to the pattern of the form."""
        shown = handler(schema)
        return {**shown, "pattern": shown["pattern"] + r"(?!\n)"}


S = TypeVar("S", bound=Settings)


def load_settings(
    model: type[S],
    *,
    section: str,
    base: Mapping[str, Any] | None = None,
    recipe: Path | str | None = None,
    config: Path | str | None = None,
    overrides: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
) -> S:
    """Load the configuration of one section from files, overrides and given values, each before the next.

    Args:
        model: the section's model.
        section: "prepare" or "train": the table of the file, and an optional prefix of overrides.
        base: nested values that take the place of defaults.
        recipe: a TOML file as ``config``, which wins over it.
        config: a TOML file with the tables ``[prepare]`` and ``[train]``.
        overrides: ``image.size=128`` each; values are TOML, or else plain text. ``image.size=``
            restores the default.
        given: nested values that win over all others.

    Raises:
        ConfigError: the file cannot be read, or a key or value is wrong.
    """
    values: dict[str, Any] = {}
    _merge(values, base or {})
    for file in (recipe, config):
        _merge(values, _read_toml(file).get(section, {}) if file else {})
    for override in overrides:
        _apply_override(values, override, section, model)
    _merge(values, given or {})
    # Errors show keys with the section in front if the user wrote them so.
    is_prefixed = any(override.strip().startswith(f"{section}.") for override in overrides)
    return validate(model, values, where=f"[{section}]", prefix=f"{section}." if is_prefixed else "")


def validate(model: type[S], values: Mapping[str, Any], where: str = "configuration", prefix: str = "") -> S:
    """Validate ``values`` as a model.

    Args:
        model: the model.
        values: nested values.
        where: the place that the values come from, for errors.
        prefix: stands before the keys that errors suggest.

    Raises:
        ConfigError: names every wrong key and value, and suggests near keys.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = [_describe(model, problem, where, prefix) for problem in error.errors(include_url=False)]
        raise ConfigError("; ".join(problem for problem, _ in problems), _first_remedy(problems)) from error


def split_overrides(
    overrides: Sequence[str], models: Mapping[str, type[BaseModel]] | None = None
) -> dict[str, list[str]]:
    """Sort the overrides of a command that takes several sections by section.

    Args:
        overrides: ``section.key=value``.
        models: the model of each section, so that the remedy can name the section that has a key.

    Raises:
        ConfigError: an override does not begin with a section's name.
    """
    by_section: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for override in overrides:
        section = override.split(".", 1)[0]
        key = override.split("=", 1)[0]
        if section not in by_section or "." not in key:
            path = key.strip().split(".")
            fitting = [name for name, model in (models or {}).items() if _is_known(model, path)]
            words = [f"--set {name}.{override}" for name in fitting or SECTIONS]
            raise ConfigError(
                f"--set {override}: this command takes the settings of several sections",
                f"write {' or '.join(words)}",
            )
        by_section[section].append(override)
    return by_section


def _read_toml(path: Path | str) -> dict[str, Any]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for key, value in document.items():
        if key not in SECTIONS or not isinstance(value, dict):
            near = difflib.get_close_matches(key, SECTIONS, n=1)
            hint = f"did you mean [{near[0]}]?" if near else "put settings under [prepare] or [train]"
            raise ConfigError(f"{path}: unknown key {key!r} at the top level", hint)
    return document


def _apply_override(values: dict[str, Any], override: str, section: str, model: type[BaseModel]) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set {override!r} is not key=value", "for example --set image.size=128")
    path = key.strip().split(".")
    if path[0] == section and len(path) > 1:
        path = path[1:]
    elif path[0] in SECTIONS and path[0] != section:
        raise ConfigError(f"--set {override}: this command takes settings of [{section}], not of [{path[0]}]")
    if not text.strip() and _is_known(model, path):
        _remove(values, path)
        return
    nested: Any = _parse_value(text.strip())
    for part in reversed(path):
        nested = {part: nested}
    _merge(values, nested)


def _parse_value(text: str) -> Any:
    """The TOML value in ``text``, or the text itself if it is not TOML (so strings need no quotes)."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text
    return text if isinstance(value, datetime.date | datetime.time) else value  # no setting is a date


def _merge(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            values[key] = dict(values[key])
            _merge(values[key], value)
        else:
            values[key] = dict(value) if isinstance(value, Mapping) else value


def _is_known(model: type[BaseModel], path: Sequence[str]) -> bool:
    """Whether a model has a key. The keys of a mapping are not known, so any key in one counts."""
    key, known = ".".join(path), _known_keys(model)
    groups = {name.rpartition(".")[0] for name in known}
    return key in known or any(key.startswith(f"{name}.") for name in known if name not in groups)


def _remove(values: dict[str, Any], path: Sequence[str]) -> None:
    """Remove a nested value, if it is there. Inner tables are copied before they change."""
    if len(path) == 1:
        values.pop(path[0], None)
    elif isinstance(values.get(path[0]), dict):
        values[path[0]] = dict(values[path[0]])
        _remove(values[path[0]], path[1:])


def _describe(model: type[BaseModel], problem: Any, where: str, prefix: str) -> tuple[str, str | None]:
    """One validation problem as (message, remedy)."""
    key = ".".join(str(part) for part in problem["loc"]) or where
    if problem["type"] == "extra_forbidden":
        known = _known_keys(model)
        near = _same_leaf(key, known) or difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"known keys: {', '.join(_siblings(key, known))}"
        if near:
            hint = f"did you mean {prefix + near[0]!r}?"
        return f"unknown key {key!r} in {where}", hint
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{key} = {problem['input']!r}: {message[:1].lower()}{message[1:]}", None


def _first_remedy(problems: list[tuple[str, str | None]]) -> str | None:
    return next((remedy for _, remedy in problems if remedy), None)


def _known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of all keys of a model and of the models in it."""
    keys = []
    for name, field in model.model_fields.items():
        keys.append(prefix + name)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                keys += _known_keys(kind, f"{prefix}{name}.")
    return keys


def _same_leaf(key: str, known: list[str]) -> list[str]:
    """Keys whose last part resembles that of ``key``: the user may have left out or mistaken the group."""
    leaves = {name.rsplit(".", 1)[-1] for name in known}
    near = difflib.get_close_matches(key.rsplit(".", 1)[-1], sorted(leaves), n=1)
    having_it = [name for name in known if name.rsplit(".", 1)[-1] in near]
    return difflib.get_close_matches(key, having_it, n=1, cutoff=0)


def _siblings(key: str, known: list[str]) -> list[str]:
    group = key.rpartition(".")[0]
    return [name for name in known if name.rpartition(".")[0] == group]
