"""The base of all configuration models, and marks for their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
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
    """Base of all configuration models: frozen, no unknown keys; a group that is null has its defaults."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, json_schema_extra=_word_form
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
