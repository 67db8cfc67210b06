"""The table [train.reading]: how stored records become batches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypedDict

from pydantic import Field

from shardmill.infra.settings import Settings, validate

Decoder = Literal["auto", "turbo", "tensorflow"]
Mode = Literal["indexed", "streaming"]
CacheForm = Literal["encoded", "decoded"]


class ReadingSettings(Settings):
    """How stored records become batches."""

    decoder: Decoder = Field(
        default="auto",
        description=("'turbo' (libjpeg-turbo and OpenCV; also 'auto') or 'tensorflow'"),
    )
    mode: Literal["auto", "indexed", "streaming"] = Field(
        default="auto",
        description=(
            "'indexed' (exact order), 'streaming' (front to back through a buffer), or 'auto': "
            "streaming for unstaged shards in an object store, else indexed"
        ),
    )
    ram_budget_bytes: int = Field(
        default=2 << 30,
        ge=1 << 26,
        le=1 << 50,
        description="Most memory of shuffle buffer, cache and batches",
    )
    shuffle_buffer: int | None = Field(
        default=None,
        ge=0,
        le=1 << 40,
        description=(
            "Examples in streaming's buffer; default: 10,000, or a quarter of ram_budget_bytes; 0 "
            "keeps the stored order of shards"
        ),
    )
    parallel_shards: int = Field(
        default=8, ge=1, le=256, description="shards that streaming reads alternately"
    )
    cache: Literal["none", "memory", "disk"] = Field(default="none", description="keep images between epochs")
    cache_form: CacheForm = Field(
        default="encoded",
        description="As stored, or decoded (about ten times larger)",
    )
    cache_bytes: int | None = Field(
        default=None,
        ge=0,
        le=1 << 60,
        description=(
            "Most that a cache takes; default: half of ram_budget_bytes, on disk half of the free space"
        ),
    )
    cache_overflow: Literal["fall-back", "refuse"] = Field(
        default="fall-back",
        description="If a split does not fit: keep less, or refuse to run",
    )
    cache_dir: str | None = Field(
        default=None,
        description="folder of caches; default: $SHARDMILL_CACHE or ~/.cache/shardmill",
    )
    staging_dir: str | None = Field(
        default=None,
        description=(
            "Folder to which shards of an object store are copied ahead of use, shared by processes"
        ),
    )
    staging_bytes: int | None = Field(
        default=None,
        ge=1,
        le=1 << 60,
        description=("Most that staging_dir holds; default: half of the free disk"),
    )
    max_bad_records: int = Field(
        default=0,
        ge=0,
        le=1 << 40,
        description="Damaged records that a run leaves out",
    )


class ReadingOptions(TypedDict, total=False):
    """``ReadingSettings`` as arguments, with their names and meanings (docs/configuration.md)."""

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
        name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()
    }
    return validate(ReadingSettings, given, where="the arguments")
