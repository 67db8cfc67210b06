"""The table [train.reading]: how stored records become batches. Part of it says how, and not what."""

from __future__ import annotations

from infra.settings import Settings


class ReadingSettings(Settings):
    """How stored records become batches."""
