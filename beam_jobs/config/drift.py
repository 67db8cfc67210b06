"""Settings of drift: the comparison of a version with the one before it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shardmill.infra.dataset.drift.limits import DriftLimits


class DriftConfig(DriftLimits):
    """Comparison of each version with the one before it, and the action if they differ too much."""

    action: Literal["warn", "stop", "off"] = Field(
        "warn",
        description=(
            "warn: log each figure beyond its limit; stop: publish nothing, and keep the encoded "
            "images; off: compare nothing"
        ),
    )
