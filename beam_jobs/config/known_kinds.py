"""The kinds of sources by their names and descriptions, read from their files: no kind is loaded for it."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from shardmill.beam_jobs.config.source import SourceConfig, settings_taken
from shardmill.infra.plugins import Plugins

PAGE: Final = "docs/add-a-source-kind.md"
_FOLDER = Path(__file__).parents[1] / "sources" / "kinds"


@cache
def built_in_kinds() -> tuple[str, ...]:
    """Return the names of the kinds that come with Shardmill, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)])))


def is_built_in(kind: str) -> bool:
    """Return whether a kind comes with Shardmill, or is "auto"."""
    return kind in built_in_kinds() or kind == "auto"


PLUGINS: Final = Plugins(
    group="shardmill.sources",
    setting="source.kind = {!r}",
    page=PAGE,
    default="list_inputs",
    is_built_in=is_built_in,
    problem=lambda found: None if callable(found) else "its list_inputs is no function",
    takes_modules=True,
)


def described_kinds() -> list[dict[str, Any]]:
    """Return all kinds: name, description, whether auto recognises it, and its options; plugins come last."""
    plugins = [
        {"kind": one.name, "description": f"Of {one.distribution} {one.version}.", "recognised": False,
         "options": []}
        for one in PLUGINS.installed()
        if not one.refusal
    ]  # fmt: skip
    return [*map(_described, built_in_kinds()), *plugins]


def _described(kind: str) -> dict[str, Any]:
    file = _FOLDER / f"{kind}.py"
    module = ast.parse((file if file.exists() else _FOLDER / kind / "__init__.py").read_bytes())
    paragraphs = (ast.get_docstring(module) or "").split("\n\n")
    functions = [part.name for part in module.body if isinstance(part, ast.FunctionDef)]
    return {
        "kind": kind,
        "description": " ".join(paragraphs[0].split()),
        "recognised": "recognise" in functions,
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
