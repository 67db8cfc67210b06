"""Choose the pipeline that reads a split (``reading.mode``), with the reason. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import LabelKind
from shardmill.training.config.data import DataSettings
from shardmill.training.config.reading import Mode, ReadingSettings

if TYPE_CHECKING:
    from shardmill.infra.dataset.version import DatasetVersion


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """The mode of the pipeline, and the reason for people."""

    mode: Mode
    reason: str


def choose_mode(version: DatasetVersion, reading: ReadingSettings, data: DataSettings) -> ModeChoice:
    """Return the mode of ``reading``; for ``auto`` choose the better one.

    Args:
        version: the dataset version to read.
        reading: the settings of reading.
        data: the settings of the order.

    Raises:
        ConfigError: streaming is set, and cannot fulfil another setting.
    """
    obstacle = _obstacle(reading, data, version.manifest.label_kind)
    if reading.mode == "streaming" and obstacle:
        raise ConfigError(f"reading.mode = 'streaming' and {obstacle}", "set reading.mode to auto or indexed")
    if reading.mode != "auto":
        return ModeChoice(reading.mode, f"reading.mode = {reading.mode!r}")
    if version.storage.is_local:
        return ModeChoice("indexed", "the shards are files of this machine, any record is at hand")
    if reading.staging_dir is not None:
        return ModeChoice("indexed", "the shards are staged to this machine")
    if reading.cache == "disk":
        return ModeChoice("indexed", "the records are cached on a disk of this machine")
    if obstacle and data.granularity == "block":
        return ModeChoice("indexed", f"{obstacle}; each block is a request to the object store")
    if obstacle:
        return ModeChoice(
            "indexed",
            f"{obstacle}; each record is a request to the object store: slow, so set reading.staging_dir",
        )
    return ModeChoice("streaming", "the shards are in an object store and not staged")


def consumed(reading: ReadingSettings, mode: Mode) -> dict[str, Any]:
    """Return the settings that decide which pixels come in which order, for a run's identity; JSON-able."""
    found: dict[str, Any] = {"mode": mode, "decoder": reading.decoder if mode == "indexed" else "tensorflow"}
    decoded = reading.cache != "none" and reading.cache_form == "decoded"
    if decoded:
        found["cache_form"] = "decoded"
    if mode == "streaming":
        found["parallel_shards"] = reading.parallel_shards
        # By default the budget determines the size of the buffer.
        buffer = reading.shuffle_buffer
        found |= (
            {"ram_budget_bytes": reading.ram_budget_bytes} if buffer is None else {"shuffle_buffer": buffer}
        )
    return found


def _obstacle(reading: ReadingSettings, data: DataSettings, labels: LabelKind) -> str | None:
    """Return why shards cannot be streamed, or None."""
    if labels != "class":
        return "labels other than one class are read from the indexes"
    if data.balance != "natural":
        return f"data.balance = {data.balance!r} needs an exact order"
    if data.granularity != "record":
        return f"data.granularity = {data.granularity!r} needs an exact order"
    if data.left_out_fold is not None:
        return "data.left_out_fold needs an exact order"
    if reading.max_bad_records:
        return f"reading.max_bad_records = {reading.max_bad_records} needs reading record by record"
    return None
