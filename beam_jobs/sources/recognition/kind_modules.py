"""The module of a kind of source, found by the name in ``source.kind``, and its options.

A name without a dot is a module of ``shardmill.beam_jobs.sources.kinds``, one with dots a module of the user
(``shardmill.infra.own_code``). So a kind is found in every process without being registered.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources import kinds
from shardmill.beam_jobs.sources.own_kinds import own_kind
from shardmill.infra.arguments import checked
from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_names
from shardmill.infra.own_code import is_own
from shardmill.infra.settings import Settings, validate

O = TypeVar("O", bound=Settings)  # noqa: E741


# Kinds by the names of other libraries and of files.
_ALSO_CALLED = {
    **dict.fromkeys(("webdataset", "wds", "tar", "zip"), "archive"),
    **dict.fromkeys(("csv", "tsv", "json", "jsonl", "dataframe"), "table"),
    **dict.fromkeys(("huggingface", "hf", "arrow"), "parquet"),
    **dict.fromkeys(("numpy", "npy", "npz", "idx", "mnist"), "arrays"),
    **dict.fromkeys(("web", "http", "https"), "urls"),
    "openimages": "box_table",
    "tensorflow_datasets": "tfds",
}


def built_in_kinds() -> list[str]:
    """Return the names of the kinds that come with Shardmill, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))


def kind_module(config: PrepareConfig) -> ModuleType:
    """Import the module of the configured kind, and check the options that are meant for it.

    Raises:
        ConfigError: there is no such module, it is no kind of source, or it refuses the options.
    """
    kind = config.source.kind
    module = _imported(kind)
    options_of(config, getattr(module, "Options", Settings), kind)
    return module


@checked
def options_of(config: PrepareConfig, model: type[O], kind: str = "") -> O:
    """Return ``source.options`` as the model of a kind.

    Raises:
        ConfigError: it names an option that the kind does not have, or a value is wrong.
    """
    kind = kind or config.source.kind
    if config.source.options and not model.model_fields:
        raise ConfigError(
            f"source.options: the kind {kind} has no options",
            f"remove {', '.join(sorted(config.source.options))}",
        )
    return validate(model, config.source.options, where=f"source.options of {kind}")


def _imported(kind: str) -> ModuleType:
    if is_own(kind) and ":" not in kind:
        return own_kind(kind).load()
    known = built_in_kinds()
    if kind not in known:
        near = [_ALSO_CALLED[kind]] if kind in _ALSO_CALLED else near_names(kind, known)
        raise ConfigError(
            f"source.kind = {kind!r} is no kind of source",
            f"did you mean {near[0]!r}?"
            if near
            else f"there are: {', '.join(known)}; or name a module of your own, such as package.my_kind",
        )
    return importlib.import_module(f"{kinds.__name__}.{kind}")
