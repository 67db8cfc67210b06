"""Number, size and container of the shards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shardmill.infra.format.records import Container
from shardmill.infra.settings import AlsoCalled, Settings

_MIB = 1 << 20


class ShardsConfig(Settings):
    """The files that hold the records."""

    num_shards: Annotated[
        Annotated[int, Field(ge=1, le=99_999)] | None, AlsoCalled("count", "shards", "number")
    ] = Field(
        None,
        description=(
            "Shards of each split, at most one a record; a later version writes its share. Unset: by "
            "shard_bytes"
        ),
    )
    shard_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = Field(
        128 * _MIB, description="Target size of a shard (bytes); unused if num_shards is given"
    )
    container: Literal["auto", Container] = Field(
        "auto",
        description="gzip: one member a record; none: plain TFRecord; auto: gzip if it saves enough",
    )
