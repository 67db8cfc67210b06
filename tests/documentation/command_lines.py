"""Checks commands by the parsers that would run them, and their settings by the models, and runs nothing."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.beam_jobs.prepare import build_parser as prepare_parser
from shardmill.flows.cli import root
from shardmill.infra.errors import ConfigError, ShardmillError
from shardmill.infra.settings import Settings, load_settings, split_overrides, validate
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.recipes import recipe_path
from shardmill.training.train import _parser as train_parser
from tests.documentation.blocks import ROOT

_TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
_MODULE_PARSERS = {"shardmill.beam_jobs.prepare": prepare_parser, "shardmill.training.train": train_parser}


def problem_of(command: str) -> str | None:
    """The fault of a command; None if it is right. Commands of other programs are not checked."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    try:
        match words:
            case ["shardmill", "--install-completion"]:
                return None  # it would change the shell of the person who runs the tests
            case ["shardmill", *arguments]:
                _check_shardmill(_until_operator(arguments))
            case ["python", "-m", module, *arguments]:
                return _problem_of_module(module, _until_operator(arguments))
            case ["make", *targets]:
                unknown = {word for word in targets if "=" not in word} - _TARGETS
                return f"no target {unknown}" if unknown else None
    except typer.Exit:  # --help and --version
        return None
    except (ShardmillError, SystemExit) as fault:
        return str(fault)
    except Exception as fault:
        if hasattr(fault, "format_message"):  # an error of click, whichever copy typer uses
            return str(fault.format_message())
        raise
    return None


def problem_of_settings(settings: Sequence[str]) -> str | None:
    """The fault of ``key=value`` settings that a command takes together; None if they are right."""
    models: list[tuple[type[Settings], str]] = [
        (PrepareConfig, "prepare"),
        (TrainConfig, "train"),
        (MaintainConfig, "maintain"),
        (PromotionRules, "promote"),
    ]
    known = _known(settings)
    problems = []
    for model, section in models:
        named = [text.removeprefix(f"{section}.") for text in known if text.startswith(f"{section}.")]
        try:
            load_settings(model, section=section, overrides=named if _split(known) else known)
            if not _split(known):
                return None
        except ShardmillError as fault:
            problems.append(str(fault))
    return " / ".join(problems) or None


def check_configuration(text: str, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Check the tables [prepare] and [train] of a configuration; return them.

    Args:
        text: TOML.
        before: what the page has shown above, to which ``text`` may add.

    Raises:
        ConfigError: a setting is unknown or wrong.
        TOMLDecodeError: it is not TOML.
    """
    alone = tomllib.loads(text)
    together = _merged(before or {}, alone)
    try:
        _check_tables(alone)
    except ConfigError:
        _check_tables(together)
    return together


def _check_tables(values: Mapping[str, Any]) -> None:
    validate(PrepareConfig, values.get("prepare", {}))
    validate(TrainConfig, values.get("train", {}))


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of both; where both have a value, the new one."""
    both = {key for key in new if isinstance(new[key], dict) and isinstance(old.get(key), dict)}
    return {**old, **new, **{key: _merged(old[key], new[key]) for key in both}}


def _until_operator(words: Sequence[str]) -> list[str]:
    """The words of the first of several commands."""
    ends = [number for number, word in enumerate(words) if word in ("|", "&&", ";", ">", ">>", "&")]
    return list(words[: ends[0]] if ends else words)


def _check_shardmill(arguments: list[str]) -> None:
    """Parse a command of ``shardmill`` as it would be, then read its settings."""
    name, context = "", root().make_context("shardmill", list(arguments))
    command: Any = context.command
    rest = list(arguments)
    while hasattr(command, "commands"):
        found, command, rest = command.resolve_command(context, rest)
        name = f"{name} {found}".strip()
        context = command.make_context(found, rest, parent=context)
    parsed = context.params
    overrides = _known(parsed.get("overrides") or [])
    recipe = parsed.get("recipe")
    file = None if recipe is None else recipe_path(recipe)
    is_schedule = name == "schedule add"
    if is_schedule and parsed["maintain"]:
        load_settings(MaintainConfig, section="maintain", overrides=overrides)
    elif name == "prepare" or (is_schedule and parsed["source"] is not None):
        settings = split_overrides(overrides)["prepare"] if is_schedule and _split(overrides) else overrides
        base = {"source": {"kind": "auto"}} if parsed.get("as_is") else None
        load_settings(PrepareConfig, section="prepare", base=base, recipe=file, overrides=settings)
    elif name == "run":
        parts = split_overrides(overrides, {"prepare": PrepareConfig, "train": TrainConfig})
        load_settings(PrepareConfig, section="prepare", recipe=file, overrides=parts["prepare"])
        load_settings(TrainConfig, section="train", recipe=file, overrides=parts["train"])
    elif overrides:
        framework = parsed.get("framework")
        more = [] if framework is None else [f"run.framework={framework}"]
        load_settings(TrainConfig, section="train", recipe=file, overrides=[*more, *overrides])


def _known(overrides: Sequence[str]) -> list[str]:
    """The settings but for models in files of the reader's own, which are not here."""
    return [setting for setting in overrides if not setting.startswith("model.name=my_models.")]


def _split(overrides: list[str]) -> bool:
    return any(setting.startswith(("prepare.", "train.")) for setting in overrides)


def _problem_of_module(module: str, arguments: list[str]) -> str | None:
    if importlib.util.find_spec(module) is None:
        return f"no module {module}"
    if module in _MODULE_PARSERS:
        _MODULE_PARSERS[module]().parse_args(arguments)
    return None
