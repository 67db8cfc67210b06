"""Validated configuration: models, TOML files, ``--set key=value``, and what help says of each key."""

from shardmill.infra.settings.keys import Setting, near_settings, nested, settings_of
from shardmill.infra.settings.loading import load_settings, split_overrides, validate
from shardmill.infra.settings.model import (
    SECTIONS,
    STORED,
    AlsoCalled,
    Renamed,
    Settings,
    WholeText,
    WrongValue,
    with_new_names,
)

__all__ = [
    "SECTIONS",
    "STORED",
    "AlsoCalled",
    "Renamed",
    "Setting",
    "Settings",
    "WholeText",
    "WrongValue",
    "load_settings",
    "near_settings",
    "nested",
    "settings_of",
    "split_overrides",
    "validate",
    "with_new_names",
]
