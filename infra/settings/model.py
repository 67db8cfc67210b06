"""The base of all configuration models, and marks for their fields."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

SECTIONS = ("prepare", "train")


# How forms name the kinds of value that a setting may have.
_KINDS = {
    "string": "text",
    "integer": "number",
    "number": "number",
    "boolean": "yes or no",
    "array": "list",
    "object": "table",
    "null": "not set",
}


def _word_form(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Let the JSON schema say what a form shows: groups of settings closed, and kinds of values in words."""
    for setting in schema["properties"].values():
        for choice in setting.get("anyOf", ()):
            if "title" not in choice and "$ref" not in choice:
                is_named = "enum" in choice or "const" in choice
                choice["title"] = "choice" if is_named else _KINDS.get(choice.get("type"), "value")
    for name in _groups(model):
        group = schema["properties"][name]
        reference = {"$ref": group.pop("$ref")} if "$ref" in group else {"allOf": group.pop("allOf")}
        group |= {"anyOf": [{"type": "null", "title": "defaults"}, reference], "default": None}


class Settings(BaseModel):
    """Base of all configuration models: frozen, no unknown keys; a group that is null has its defaults.

    A truth value is no number, although Python counts with it.

    Attributes:
        renamed: dotted name of a setting in an earlier release, within this model -> its name now. Old names
            are read with a FutureWarning, unless the context of the validation is ``STORED``.
        renamed_in: dotted name of this group of settings, for that warning.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, json_schema_extra=_word_form
    )
    renamed: ClassVar[Mapping[str, Renamed]] = {}
    renamed_in: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _as_written_now(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, Mapping):
            return values
        if cls.renamed:
            values = with_new_names(cls, values, _ignore if info.context == STORED else _warn)
        groups = _groups(cls)
        return {
            name: str(value).lower() if isinstance(value, bool) and name in _numbers(cls) else value
            for name, value in values.items()
            if value is not None or name not in groups
        }


class WrongValue(ValueError):
    """A value that a setting does not take, or values that do not go together.

    Attributes:
        message: the problem, with the key if it is not that of the validator.
        remedy: what the user can do about it, or None.
    """

    def __init__(self, message: str, remedy: str | None) -> None:
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Renamed:
    """The present name of a setting that had another.

    Attributes:
        to: dotted name, within the model that knows the old one.
        default: default of the old setting; a value equal to it is dropped.
        convert: makes the value that the new setting takes from that of the old one.
    """

    to: str
    default: Any = None
    convert: Callable[[Any], Any] | None = None


STORED = {"stored": True}  # context of a validation: the values were written by this or an earlier release


def _ignore(message: str) -> None:
    """Take no notice of an old name, which an earlier release stored."""


def with_new_names(
    model: type[Settings], values: Mapping[str, Any], tell: Callable[[str], None] = _ignore
) -> dict[str, Any]:
    """Return nested values with the new names of settings in place of old ones, also in groups.

    Args:
        model: settings model of the values.
        values: as a file, an override or a Python program gives them.
        tell: takes a sentence for each old name.

    Raises:
        ValueError: a setting has two values, one by its old name.
    """
    found = dict(values)
    for old, new in model.renamed.items():
        if (value := _take(found, old.split("."))) is None:
            continue
        names = [".".join(filter(None, (model.renamed_in, name))) for name in (old, new.to)]
        tell(f"the setting {names[0]} is called {names[1]} now; the old name goes with the next release")
        if (tuple(value) if isinstance(value, list) else value) == new.default:
            continue
        value = value if new.convert is None else new.convert(value)
        if not _put(found, new.to.split("."), value, new.default):
            raise ValueError(
                f"{names[0]} is the old name of {names[1]}, and both have a value: leave {names[0]} out"
            )
    for name, group in _groups(model).items():
        if isinstance(found.get(name), Mapping):
            found[name] = with_new_names(group, found[name], tell)
    return found


def new_path(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Return the path of a setting as it is called now, given by its present or its old name."""
    key = ".".join(path)
    for old, new in getattr(model, "renamed", {}).items():
        if f"{key}.".startswith(f"{old}."):
            return f"{new.to}{key[len(old) :]}".split(".")
    info = model.model_fields.get(path[0]) if path else None
    group = None if info is None else group_of(info)
    return list(path) if group is None else [path[0], *new_path(group, path[1:])]


def _take(values: dict[str, Any], path: Sequence[str]) -> Any:
    """Take a value out of nested tables, which are copied; None if there is none."""
    if len(path) == 1:
        return values.pop(path[0], None)
    if not isinstance(values.get(path[0]), Mapping):
        return None
    inner = values[path[0]] = dict(values[path[0]])
    return _take(inner, path[1:])


def _put(values: dict[str, Any], path: Sequence[str], value: Any, default: Any) -> bool:
    """Put a value into nested tables, which are copied; return whether no other value was there.

    Args:
        values: the tables.
        path: keys down to the value.
        value: to put; what a table has besides stays.
        default: default of the old setting; where it stands, no other value was there.
    """
    there = values.get(path[0])
    if len(path) > 1:
        inner = values[path[0]] = dict(there) if isinstance(there, Mapping) else {}
        return _put(inner, path[1:], value, default)
    if isinstance(there, Mapping) and isinstance(value, Mapping):
        value, there = {**value, **there}, None
    values[path[0]] = value
    return there is None or there in (value, default)


def _warn(message: str) -> None:
    warnings.warn(message, FutureWarning, stacklevel=4)


def group_of(info: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a group of settings; None: it is a setting."""
    annotation = info.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _groups(model: type[BaseModel]) -> dict[str, type[Settings]]:
    """The groups of settings of a model, by their names."""
    groups = {name: group_of(info) for name, info in model.model_fields.items()}
    return {
        name: group for name, group in groups.items() if group is not None and issubclass(group, Settings)
    }


@functools.cache
def _numbers(model: type[BaseModel]) -> frozenset[str]:
    """The names of the fields that take a number and no truth value."""
    kinds = {name: set(_kinds(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, of in kinds.items() if of & {int, float} and bool not in of)


def _kinds(annotation: Any) -> Iterator[type]:
    """The types of the values that an annotation allows."""
    if get_origin(annotation) is Literal:
        yield from map(type, get_args(annotation))
    elif get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _kinds(part)
    elif isinstance(annotation, type):
        yield annotation


@dataclass(frozen=True, slots=True, init=False)
class AlsoCalled:
    """Marks a setting that people often change, with other names that they know it by.

    Suggestions and searches find it by these names, and prefer it to settings without this mark.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


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
