"""Check manifests by published schemas, without a cluster."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

JOBSET = Path(__file__).with_name("schemas") / "jobset-0.12.0.json"


def check_jobset(manifest: dict[str, Any]) -> None:
    """Raise ``jsonschema.ValidationError`` if a JobSet breaks its schema or has unknown fields."""
    _jobset_validator().validate(manifest)


@cache
def _jobset_validator() -> jsonschema.Draft7Validator:
    schema: dict[str, Any] = _closed(json.loads(JOBSET.read_text()))
    # The API server knows these of every object.
    schema["properties"]["metadata"] = {"type": "object"}
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
