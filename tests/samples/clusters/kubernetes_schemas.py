"""Check manifests by published schemas, without a cluster."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

JOBSET = Path(__file__).with_name("schemas") / "jobset-0.12.0.json"


def check_jobset(manifest: dict[str, Any]) -> None:
    """Raise ``jsonschema.ValidationError`` if a JobSet breaks its schema or has unknown fields."""
    _jobset_validator().validate(manifest)


def check_by_definition(manifest: dict[str, Any], definition: Path) -> None:
    """Raise ``jsonschema.ValidationError`` if an object breaks the schema of its resource definition.

    Args:
        manifest: of the object.
        definition: a file with a CustomResourceDefinition.
    """
    versions = yaml.safe_load(definition.read_text())["spec"]["versions"]
    asked = manifest["apiVersion"].rpartition("/")[2]
    (schema,) = [one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == asked]
    _validator(schema).validate(manifest)


def check_values(values: dict[str, Any], chart: Path) -> None:
    """Raise ``jsonschema.ValidationError`` if values, on top of a Helm chart's own, break its schema."""
    schema = json.loads((chart / "values.schema.json").read_text())
    merged = _merged(yaml.safe_load((chart / "values.yaml").read_text()), values)
    jsonschema.Draft7Validator(schema).validate(merged)


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{name: _merged(below.get(name), value) for name, value in above.items()}}


@cache
def _jobset_validator() -> jsonschema.Draft7Validator:
    return _validator(json.loads(JOBSET.read_text()))


def _validator(described: dict[str, Any]) -> jsonschema.Draft7Validator:
    schema: dict[str, Any] = _closed(described)
    # The API server knows these of every object.
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def _closed(schema: Any) -> Any:
    """The schema without unknown fields, which an API server drops."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict) and schema.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed
