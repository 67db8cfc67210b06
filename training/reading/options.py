"""The settings ``[train.reading]`` as keyword arguments, for callers in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict

from shardmill.infra.settings import validate
from shardmill.training.config.reading import CacheForm, Decoder, ReadingSettings

_FOLDERS = ("cache_dir", "staging_dir")


class ReadingOptions(TypedDict, total=False):
    """Options with the names and meanings of the settings ``train.reading`` (docs/configuration.md)."""

    decoder: Decoder
    mode: Literal["auto", "indexed", "streaming"]
    ram_budget_bytes: int
    shuffle_buffer: int | None
    parallel_shards: int
    cache: Literal["none", "memory", "disk"]
    cache_form: CacheForm
    cache_bytes: int | None
    cache_overflow: Literal["fall-back", "refuse"]
    cache_dir: str | Path | None
    staging_dir: str | Path | None
    staging_bytes: int | None
    max_bad_records: int


def reading_settings_from(options: ReadingOptions) -> ReadingSettings:
    """Return the settings for the arguments of a caller.

    Raises:
        ConfigError: an option is unknown or wrong.
    """
    given = {
        name: str(value) if name in _FOLDERS and value is not None else value
        for name, value in options.items()
    }
    return validate(ReadingSettings, given, where="the arguments")
