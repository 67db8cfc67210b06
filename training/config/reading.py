"""The table [train.reading]: how stored records become batches."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shardmill.infra.settings import Settings

Decoder = Literal["auto", "turbo", "tensorflow"]
Mode = Literal["indexed", "streaming"]
CacheForm = Literal["encoded", "decoded"]


class ReadingSettings(Settings):
    """How stored records become batches."""

    decoder: Decoder = Field(
        default="auto",
        description="library that decodes stored images: 'turbo' (libjpeg-turbo and OpenCV, outside "
        "TensorFlow's graph, 1.4 times as fast), 'tensorflow', or 'auto', which is 'turbo'",
    )
    mode: Literal["auto", "indexed", "streaming"] = Field(
        default="auto",
        description="'indexed' (the exact order, any record at any time), 'streaming' (shards from front to "
        "back through a shuffle buffer), or 'auto': streaming for shards in an object store that are not "
        "staged, and indexed otherwise",
    )
    ram_budget_bytes: int = Field(
        default=2 << 30,
        ge=1 << 26,
        le=1 << 50,
        description="most memory that reading may take: shuffle buffer, cache in memory, batches under way",
    )
    shuffle_buffer: int | None = Field(
        default=None,
        ge=0,
        le=1 << 40,
        description="examples in the shuffle buffer of streaming; default: 10,000, or as many as a quarter "
        "of ram_budget_bytes holds; 0 keeps the stored order within shards",
    )
    parallel_shards: int = Field(
        default=8, ge=1, le=256, description="shards that streaming reads alternately, for better mixing"
    )
    cache: Literal["none", "memory", "disk"] = Field(
        default="none", description="keep images between epochs, in memory or in a file of this machine"
    )
    cache_form: CacheForm = Field(
        default="encoded",
        description="form of cached images: as stored, or decoded (about ten times larger, but decoded "
        "only once)",
    )
    cache_bytes: int | None = Field(
        default=None,
        ge=0,
        le=1 << 60,
        description="most that a cache may take; default: half of ram_budget_bytes in memory, half of the "
        "free space on disk",
    )
    cache_overflow: Literal["fall-back", "refuse"] = Field(
        default="fall-back",
        description="a split that does not fit the cache: keep less (encoded for decoded, or nothing), or "
        "refuse to run",
    )
    cache_dir: str | None = Field(
        default=None,
        description="folder of caches on disk; default: $SHARDMILL_CACHE or ~/.cache/shardmill",
    )
    staging_dir: str | None = Field(
        default=None,
        description="folder of this machine to which shards in an object store are copied ahead of use; "
        "default: none, they are read from the object store. Processes of one machine share it",
    )
    staging_bytes: int | None = Field(
        default=None,
        ge=1,
        le=1 << 60,
        description="most that staging_dir may hold, over all datasets and processes; default: half of the "
        "free space of its disk",
    )
    max_bad_records: int = Field(
        default=0,
        ge=0,
        le=1 << 40,
        description="damaged records that a run leaves out, each named in its result; one more ends it",
    )
