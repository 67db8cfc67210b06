"""The kinds of sources, and the settings of each."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.config.source import settings_taken
from shardmill.beam_jobs.sources import kinds
from shardmill.beam_jobs.sources.kind_modules import built_in_kinds


def described_kinds() -> list[dict[str, Any]]:
    """Return the built-in kinds: name, description, whether auto recognises it, and its options."""
    return [_described(kind) for kind in built_in_kinds()]


def _described(kind: str) -> dict[str, Any]:
    module = importlib.import_module(f"{kinds.__name__}.{kind}")
    paragraphs = (module.__doc__ or "").strip().split("\n\n")
    return {
        "kind": kind,
        "description": " ".join(paragraphs[0].split()),
        "recognised": hasattr(module, "recognise"),
        "options": list(_options(kind)),
    }


def _options(kind: str) -> Iterator[dict[str, Any]]:
    """Yield the settings that matter for a kind."""
    for group, taken in settings_taken(kind).items():
        settings: BaseModel = attrgetter(group)(SourceConfig()) if group else SourceConfig()
        for name in type(settings).model_fields:
            if name in taken:
                path = ".".join(filter(None, ("source", group, name)))
                yield _option(path, type(settings), name, getattr(settings, name))


def _option(path: str, model: type[BaseModel], name: str, default: Any) -> dict[str, Any]:
    field = model.model_fields[name]
    shown = list(default) if isinstance(default, tuple) else default
    return {"option": path, "default": shown, "description": field.description or ""}
