"""Load configuration: TOML files, ``--set key=value`` and given values, in rising precedence.

Unknown keys are errors that suggest what was meant.
"""

from __future__ import annotations

import datetime
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_names
from shardmill.infra.progress import is_heard, log
from shardmill.infra.readable import shortened
from shardmill.infra.settings.keys import Setting, is_known, near_settings, remedy_for, settings_of
from shardmill.infra.settings.model import SECTIONS, Settings, WrongValue, new_path, with_new_names

_SHOWN = 4
_SHOWN_CHARACTERS = 200
_NEAR_VALUE = 0.54  # likeness from which one of the known values is suggested
_CLOSE = 0.1  # likeness of keys of two sections that are named together
_TYPOGRAPHIC = re.compile(
    "[\u2018\u2019\u201c\u201d\u00ab\u00bb]"
)  # quotes that an editor put in place of plain ones
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
    elsewhere: Mapping[str, type[BaseModel]] | None = None,
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
        elsewhere: the models of other sections, for suggestions.

    Raises:
        ConfigError: the file cannot be read, or a key or value is wrong.
    """
    values: dict[str, Any] = {}
    _merge(values, base or {})
    for file in (recipe, config):
        _merge(values, _renamed(model, _read_toml(file).get(section, {}) if file else {}, str(file)))
    for override in overrides:
        _apply_override(values, override, section, model)
    _merge(values, _renamed(model, given or {}, "the given settings"))
    # Errors show keys with the section in front if the user wrote them so.
    is_prefixed = any(override.strip().startswith(f"{section}.") for override in overrides)
    prefix = f"{section}." if is_prefixed else ""
    return validate(model, values, where=f"[{section}]", prefix=prefix, elsewhere=elsewhere)


def validate(
    model: type[S],
    values: Mapping[str, Any],
    where: str = "configuration",
    prefix: str = "",
    elsewhere: Mapping[str, type[BaseModel]] | None = None,
) -> S:
    """Validate ``values`` as a model.

    Args:
        model: the model.
        values: nested values.
        where: the place that the values come from, for errors.
        prefix: stands before the keys that errors suggest.
        elsewhere: the models of other sections, for suggestions.

    Raises:
        ConfigError: names every wrong key and value, and suggests near keys.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        remedy = partial(remedy_for, model=model, prefix=prefix, elsewhere=elsewhere)
        settings = {setting.key: setting for setting in settings_of(model)}
        found = _without_branches(error.errors(include_url=False), settings)
        problems = [_describe(problem, where, remedy, settings) for problem in found]
        first = next((problem.remedy for problem in problems if problem.remedy), None)
        raise ConfigError("; ".join(problem.message for problem in problems), first) from error


def split_overrides(
    overrides: Sequence[str], models: Mapping[str, type[BaseModel]] | None = None
) -> dict[str, list[str]]:
    """Sort the overrides of a command that takes several sections by section.

    Args:
        overrides: ``section.key=value``; or ``key=value`` with a key that one section alone has.
        models: the model of each section, to tell which section has a key.

    Raises:
        ConfigError: several sections have a key, or none has.
    """
    by_section: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for override in overrides:
        section = override.split(".", 1)[0].strip()
        key = override.split("=", 1)[0].strip()
        if section not in by_section or "." not in key:
            section = _only_section(override, key, models or {})
            override = f"{section}.{override.strip()}"
        by_section[section].append(override)
    return by_section


def _only_section(override: str, key: str, models: Mapping[str, type[BaseModel]]) -> str:
    """Return the only section that has a key.

    Raises:
        ConfigError: several have it, or none has.
    """
    fitting = [name for name, model in models.items() if is_known(model, key.split("."))]
    if len(fitting) == 1:
        return fitting[0]
    if len(fitting) > 1 or not models:
        words = " or ".join(f"--set {name}.{override}" for name in fitting or SECTIONS)
        raise ConfigError(f"--set {override}: which section? This command has several", f"write {words}")
    near = [
        (f"{name}.{found[0].setting.key}", found[0].likeness)
        for name, model in models.items()
        if (found := near_settings(key, model))
    ]
    best = max((likeness for _, likeness in near), default=0.0)
    nearest = " or ".join(repr(name) for name, likeness in near if likeness > best - _CLOSE)
    raise ConfigError(
        f"--set {override}: no setting is called {key!r}",
        f"did you mean {nearest}?"
        if nearest
        else f"search them: shardmill settings {key.rpartition('.')[2]}",
    )


def _read_toml(path: Path | str) -> dict[str, Any]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read configuration {path}: {error.strerror}", "name a TOML file: --config FILE.toml"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for key, value in document.items():
        if key not in SECTIONS or not isinstance(value, dict):
            near = near_names(key, SECTIONS)
            hint = f"did you mean [{near[0]}]?" if near else "put settings under [prepare] or [train]"
            raise ConfigError(f"{path}: unknown key {key!r} at the top level", hint)
    return document


def _apply_override(values: dict[str, Any], override: str, section: str, model: type[BaseModel]) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        name, colon, value = key.partition(":")
        meant = f"{name.strip() or 'KEY'}={value.strip() if colon else 'VALUE'}"
        raise ConfigError(f"--set {override!r} is not key=value", f"write --set {meant}")
    if _TYPOGRAPHIC.search(override):
        raise ConfigError(f"--set {override}: the quotes are typographic", "write them as ' or \"")
    path = key.strip().split(".")
    if path[0] == section and len(path) > 1:
        path = path[1:]
    elif path[0] in SECTIONS and path[0] != section:
        raise ConfigError(
            f"--set {override}: this command takes settings of [{section}], not of [{path[0]}]",
            f"give it to shardmill {path[0]}, or to shardmill run",
        )
    if not text.strip() and is_known(model, path):
        _remove(values, new_path(model, path))
        return
    nested: Any = _parse_value(text.strip(), override)
    for part in reversed(path):
        nested = {part: nested}
    _merge(values, _renamed(model, nested, f"--set {override}"))


def _renamed(model: type[BaseModel], values: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return values with the new names of settings; each old name is a warning that says where it stands.

    Raises:
        ConfigError: a setting has two values, one by its old name.
    """
    if not issubclass(model, Settings):
        return values
    try:
        return with_new_names(model, values, lambda message: _warn(f"{where}: {message}"))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _warn(message: str) -> None:
    """Tell people; settings are mostly read before a command shows the events of its job."""
    if is_heard():
        log(message, level="warning")
    else:
        print(f"warning: {message}", file=sys.stderr)


def _parse_value(text: str, override: str) -> Any:
    """The TOML value in ``text``, or the text itself if it is not TOML (so strings need no quotes)."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        if text.startswith(("[", "{")):
            raise ConfigError(
                f"--set {override}: {text} is neither a list nor a table of TOML",
                """put it in single quotes, for the shell takes the others: --set 'key=["a", "b"]'""",
            ) from None
        return text
    return text if isinstance(value, datetime.date | datetime.time) else value  # no setting is a date


def _merge(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            values[key] = dict(values[key])
            _merge(values[key], value)
        else:
            values[key] = dict(value) if isinstance(value, Mapping) else value


def _remove(values: dict[str, Any], path: Sequence[str]) -> None:
    """Remove a nested value, if it is there. Inner tables are copied before they change."""
    if len(path) == 1:
        values.pop(path[0], None)
    elif isinstance(values.get(path[0]), dict):
        values[path[0]] = dict(values[path[0]])
        _remove(values[path[0]], path[1:])


def _without_branches(problems: Sequence[Any], settings: Mapping[str, Setting]) -> list[Any]:
    """Return one problem of each setting, the most exact: of a setting of several types each type has one."""
    found: dict[tuple[str, ...], Any] = {}
    for problem in problems:
        path = tuple(str(part) for part in problem["loc"])
        ends = [end for end in range(len(path), 0, -1) if ".".join(path[:end]) in settings]
        key = path[: ends[0]] if ends else path
        if key not in found or len(path) > len(found[key]["loc"]):
            found[key] = problem
    places = {
        key: [part for part in each["loc"][len(key) :] if isinstance(part, int)]
        for key, each in found.items()
    }
    return [{**each, "loc": (*key, *places[key])} for key, each in found.items()]


def _describe(
    problem: Any, where: str, remedy: Callable[[str], str], settings: Mapping[str, Setting]
) -> ConfigError:
    """Return the error of one validation problem."""
    path, given = [str(part) for part in problem["loc"]], problem["input"]
    key = ".".join(path)
    setting = next(
        (settings[one] for end in range(len(path), 0, -1) if (one := ".".join(path[:end])) in settings), None
    )
    if problem["type"] == "extra_forbidden":
        key = ".".join([key, *_first_keys(given)])
        return ConfigError(f"unknown key {key!r} in {where}", remedy(key))
    if isinstance(given, Mapping) and key in settings and "table" not in settings[key].kind:
        wanted = settings[key].kind.replace("`", "")
        inner = ".".join([key, *_first_keys(given)])
        return ConfigError(
            f"unknown key {inner!r} in {where}: {key} is no group", f"write {key}=VALUE: {wanted}"
        )
    if problem["type"] == "model_type":
        return ConfigError(f"{key} = {given!r}: {key} is a group of settings", _in_group(key, settings))
    wrong = problem.get("ctx", {}).get("error")
    message = (
        wrong.message if isinstance(wrong, WrongValue) else str(problem["msg"]).removeprefix("Value error, ")
    )
    hint = wrong.remedy if isinstance(wrong, WrongValue) else _allowed(problem, key or where, setting)
    if setting is not None:
        shown = shortened(repr(given), _SHOWN_CHARACTERS)
        return ConfigError(f"{key} = {shown}: {message[:1].lower()}{message[1:]}", hint)
    # Of a group, or of all settings: the message names those that do not go together.
    group = f"{key}." if key else ""
    return ConfigError(message if message.startswith(group) else f"{key}: {message}", hint)


def _allowed(problem: Any, key: str, setting: Setting | None) -> str:
    """Say what a setting takes, or where to look up those of a group."""
    if setting is None:
        return f"see what they mean: shardmill settings {key.strip('[]')}"
    if problem["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
        near = near_names(str(problem["input"]), known, least=_NEAR_VALUE)
        if near:
            return f"did you mean {near[0]!r}?"
    is_told_in_words = problem["type"] in ("string_pattern_mismatch", "value_error")
    wanted = setting.description if is_told_in_words else f"give {setting.kind}"
    return f"{wanted}; default: {setting.default}".replace("`", "")


def _in_group(key: str, settings: Mapping[str, Setting]) -> str:
    """What to write in place of a value for a whole group."""
    inside = [name for name in settings if name.startswith(f"{key}.")]
    named = [name for name in inside if key.rpartition(".")[2] in settings[name].also_called]
    if named:
        return f"did you mean {named[0]!r}?"
    more = f" and more: shardmill settings {key}" if inside[_SHOWN:] else ""
    return f"it has {', '.join(inside[:_SHOWN])}{more}"


def _first_keys(value: Any) -> list[str]:
    """The keys that lead to the first value in nested tables."""
    if not isinstance(value, Mapping) or not value:
        return []
    key, inner = next(iter(value.items()))
    return [str(key), *_first_keys(inner)]
