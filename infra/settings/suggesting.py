"""Suggest the setting that a person meant by a key that does not exist.

A key and a setting are compared without dots, dashes and underscores, whole and by their last parts: a person
leaves out a group, mistakes it, or writes ``image.size`` for ``image_size``. Of settings that are as near,
those that people often change come first, then those nearer to the top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from shardmill.infra.near_names import likeness, plain_words
from shardmill.infra.settings.keys import Setting, is_known, known_keys, settings_of

_NEAR = 0.72  # similarity from which a setting is worth a suggestion
_LESS = 0.12  # penalty of a match by the last part of the key alone
_SHOWN = 2


@dataclass(frozen=True, slots=True)
class Near:
    """A setting that resembles a key.

    Attributes:
        setting: the setting.
        likeness: from 0 to 1, where names of both are the same.
    """

    setting: Setting
    likeness: float


def near_settings(key: str, model: type[BaseModel]) -> list[Near]:
    """Return the settings that a key may stand for, the likeliest first."""
    found = [Near(setting, _likeness(key, setting)) for setting in settings_of(model)]
    near = [each for each in found if each.likeness >= _NEAR]
    return sorted(near, key=_rank)


def remedy_for(
    key: str, model: type[BaseModel], prefix: str = "", elsewhere: Mapping[str, type[BaseModel]] | None = None
) -> str:
    """Say what to write in place of a key that a model does not have.

    Args:
        key: the dotted key.
        model: the model.
        prefix: stands before the keys that are suggested.
        elsewhere: models of other sections, by the name of the section.
    """
    own = near_settings(key, model)
    others = {section: near_settings(key, other) for section, other in (elsewhere or {}).items()}
    homes = [section for section, other in (elsewhere or {}).items() if is_known(other, key.split("."))]
    note = f" ({key} is a setting of {homes[0]})" if homes else ""
    if own:
        return f"did you mean {_quoted(own, prefix)}?{note}"
    if homes:
        return f"{key} is a setting of {homes[0]}, not of this command"
    for section, near in others.items():
        if near:
            return f"did you mean {_quoted(near, '')}, a setting of {section}?"
    group = key.rpartition(".")[0]
    known = [name for name in known_keys(model) if name.rpartition(".")[0] == group]
    listed = f"known keys: {', '.join(known)}; " if known else ""
    return f"{listed}search them: shardmill settings {''.join(plain_words(key)[-1:])}".rstrip()


def _quoted(near: list[Near], prefix: str) -> str:
    """The first settings; more than one only if no other is as likely."""
    best = [each for each in near if _rank(each)[:2] == _rank(near[0])[:2]]
    return " or ".join(repr(prefix + each.setting.key) for each in best[:_SHOWN])


def _rank(near: Near) -> tuple[float, bool, int]:
    return (-round(near.likeness, 2), not near.setting.also_called, near.setting.key.count("."))


def _likeness(key: str, setting: Setting) -> float:
    group, _, last = key.rpartition(".")
    names = {setting.leaf, *setting.also_called}
    path = likeness(key, setting.key)
    # By the last part alone, less the more the groups differ.
    less = 0.0 if setting.key.rpartition(".")[0] == group else _LESS * (1 - path)
    parts = max(likeness(last, name) for name in names) - less if group else 0.0
    return max(parts, path, *(likeness(key, name) for name in names))
