"""Recipes: named configuration files that are known to work. The head of each says what it reaches.

A recipe has the tables ``[prepare]`` and ``[train]``, like a configuration file. A user's own file and single
settings win over it.
"""

from __future__ import annotations

from pathlib import Path

from shardmill.infra.errors import UsageError
from shardmill.infra.near_names import near_miss

_FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def recipe_path(name: str) -> Path:
    """Return the configuration file of a recipe.

    Raises:
        UsageError: there is no such recipe; suggests the near miss.
    """
    names = recipe_names()
    if name not in names:
        raise UsageError(f"no recipe is named {name!r}", near_miss(name, names))
    return _FOLDER / f"{name}.toml"
