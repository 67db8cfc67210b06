"""Make schedules, inboxes and rules of training of the options of `shardmill schedule add`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmill.flows.cli.server.schedule_rows import RULE_NAME
from shardmill.flows.flow_runs.jobs import (
    checked_source,
    prepare_settings,
    settings_by_section,
    train_settings,
)
from shardmill.flows.server.automations import TrainingRule
from shardmill.flows.server.schedules import Schedule
from shardmill.infra.errors import UsageError
from shardmill.infra.own_code import OwnCode
from shardmill.infra.settings import load_settings
from shardmill.infra.storage.locations import check_dataset_name

if TYPE_CHECKING:
    from pydantic import BaseModel

    from shardmill.flows.scheduling.inboxes import Inbox

_RULE_EVERY = "1h"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}\Z")


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of the command; see there for each."""

    dataset: str
    source: str | None
    name: str
    cron: str | None
    every: str | None
    timezone: str | None
    train: bool
    train_when: str | None
    promote: bool
    maintain: bool
    inbox: bool
    batch: int | None
    within: str | None
    settle: str | None
    recipe: str | None
    config: Path | None
    overrides: list[str]

    @property
    def is_rule(self) -> bool:
        """Whether it trains on versions that others publish."""
        return self.train and self.source is None and not (self.inbox or self.maintain)

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            UsageError: they do not.
        """
        if self.name and not _NAME.match(self.name):
            raise UsageError(
                f"--name {self.name!r}: not a name", "use letters, digits, dots and dashes, such as nightly"
            )
        if self.maintain and (self.source or self.train or self.inbox):
            raise UsageError(
                "--maintain works on a dataset, not on a source",
                "shardmill schedule add --dataset NAME --maintain --every 1d",
            )
        if not self.train and (self.train_when is not None or self.promote):
            raise UsageError("--train-when and --promote go with --train", "add --train")
        if self.train_when is not None:
            from shardmill.flows.train_when import parse_train_when

            parse_train_when(self.train_when)
        if self.is_rule:
            self._check_rule()
            return
        if self.name == RULE_NAME:
            raise UsageError(f"--name {RULE_NAME} is that of the rule of training", "give another name")
        if self.source is None and not self.maintain:
            raise UsageError("which folder?", "shardmill schedule add SOURCE --dataset NAME --every 1h")
        if self.inbox and (self.cron or self.every or self.timezone):
            raise UsageError(
                "--inbox watches the folder all the time and needs no --cron or --every",
                "leave them out, or leave out --inbox",
            )
        if not self.inbox and (self.cron is None) == (self.every is None):
            raise UsageError("give either --cron or --every", "for example --every 1h, or --inbox")
        for option, text in (("--every", self.every), ("--within", self.within), ("--settle", self.settle)):
            if text is not None:
                _seconds(option, text)
        if not self.inbox and (self.batch or self.within or self.settle):
            raise UsageError("--batch, --within and --settle go with --inbox", "add --inbox")
        if self.timezone is not None and self.cron is None:
            raise UsageError(
                "--timezone goes with --cron: an interval is the same in every zone",
                'leave it out, or use --cron, for example --cron "0 3 * * *"',
            )

    def _check_rule(self) -> None:
        if self.name not in ("", RULE_NAME):
            raise UsageError(
                f"--name {self.name}: a dataset has one rule of training, called {RULE_NAME}",
                "leave it out; or name the SOURCE to prepare before",
            )
        if self.cron or self.timezone or self.batch or self.within or self.settle:
            raise UsageError(
                "a rule of training follows new versions, and asks by the clock with --every alone",
                "leave out --cron and the options of --inbox; or name the SOURCE to prepare before",
            )


def planned_rule(wish: Wish) -> TrainingRule:
    """The rule of training that the options describe."""
    from shardmill.flows.train_when import TrainWhen, parse_train_when
    from shardmill.training.config import own_code

    check_dataset_name(wish.dataset)
    settings = train_settings(wish.config, wish.overrides, wish.recipe)
    when = TrainWhen() if wish.train_when is None else parse_train_when(wish.train_when)
    parameters = {
        "dataset": wish.dataset,
        "config": chosen(settings),
        "when": chosen(when),
        "promote": wish.promote,
        **_folder_of_code(own_code(settings)),
    }
    return TrainingRule(wish.dataset, parameters, parse_interval(wish.every or _RULE_EVERY))


def planned_schedule(wish: Wish) -> Schedule:
    """The schedule that the options describe."""
    interval = None if wish.every is None else parse_interval(wish.every)
    flow, parameters = _work(wish)
    when: dict[str, Any] = {"cron": wish.cron, "every": interval, "timezone": wish.timezone}
    return Schedule(flow, wish.dataset, parameters, name=wish.name, **when)


def planned_inbox(wish: Wish) -> Inbox:
    """The inbox that the options describe."""
    from shardmill.flows.scheduling.inboxes import Inbox
    from shardmill.flows.scheduling.source_state import Batching

    usual = Batching()
    settle = usual.settle_seconds if wish.settle is None else _seconds("--settle", wish.settle)
    batching = Batching(
        settle_seconds=settle,
        files=usual.files if wish.batch is None else wish.batch,
        within_seconds=usual.within_seconds if wish.within is None else _seconds("--within", wish.within),
    )
    # Files that still grow when the run begins are left to the next one.
    growing = f"source.min_age_seconds={settle:g}"
    flow, parameters = _work(wish, f"prepare.{growing}" if wish.train else growing)
    return Inbox(flow, wish.dataset, parameters, name=wish.name, batching=batching)


def _work(wish: Wish, *more: str) -> tuple[str, dict[str, object]]:
    """The flow that runs, and its parameters."""
    from shardmill.beam_jobs.sources.kind_modules import own_kind
    from shardmill.training.config import own_code

    given = {override.partition("=")[0].strip() for override in wish.overrides}
    overrides = [*(one for one in more if one.partition("=")[0] not in given), *wish.overrides]
    if wish.maintain:
        from shardmill.beam_jobs.config.maintain import MaintainConfig

        check_dataset_name(wish.dataset)
        settings = load_settings(
            MaintainConfig, section="maintain", config=wish.config, overrides=wish.overrides
        )
        return "maintain", {"dataset": wish.dataset, "config": chosen(settings)}
    assert wish.source is not None
    parameters: dict[str, object] = {"dataset": wish.dataset}
    own: list[OwnCode] = []
    if wish.train:
        by_section = settings_by_section(overrides)
        for_prepare = prepare_settings(wish.config, by_section["prepare"], recipe=wish.recipe)
        parameters["prepare_config"] = chosen(for_prepare)
        for_train = train_settings(wish.config, by_section["train"], wish.recipe)
        parameters["train_config"] = chosen(for_train)
        parameters |= {"only_when_changed": True, **_what_follows(wish)}
        own = own_code(for_train)
    else:
        for_prepare = prepare_settings(wish.config, overrides, recipe=wish.recipe)
        parameters["config"] = chosen(for_prepare)
    own += filter(None, [own_kind(for_prepare.source.kind)])
    parameters |= _folder_of_code(own)
    parameters["source"] = checked_source(wish.source, wish.dataset, for_prepare.source.kind)
    return "pipeline" if wish.train else "prepare", parameters


def _folder_of_code(own: Sequence[OwnCode]) -> dict[str, object]:
    """Return the parameter ``code``, this folder, if it holds some of the user's own modules."""
    folder = Path.cwd()
    return {"code": str(folder)} if any(code.is_below(folder) for code in own) else {}


def _what_follows(wish: Wish) -> dict[str, object]:
    """The parameters of the pipeline for the conditions of training and for promotion."""
    parameters: dict[str, object] = {"promote": True} if wish.promote else {}
    if wish.train_when is not None:
        from shardmill.flows.train_when import parse_train_when

        parameters["train_when"] = chosen(parse_train_when(wish.train_when))
    return parameters


def chosen(settings: BaseModel) -> dict[str, Any]:
    """Return the settings that differ from the defaults.

    Only these are stored, so a schedule still works after a release removes another setting.
    """
    return settings.model_dump(mode="json", exclude_defaults=True)


def parse_interval(text: str) -> timedelta:
    """The interval of a text such as ``90s``, ``30min``, ``6h`` or ``1d``.

    Raises:
        UsageError: The text is not an interval, or the interval is shorter than 10 seconds.
    """
    interval = timedelta(seconds=_seconds("--every", text))
    if interval < timedelta(seconds=10):
        raise UsageError(f"--every {text}: shorter than 10 seconds", "for example --every 30min")
    return interval


def _seconds(option: str, text: str) -> float:
    units = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)", text.strip())
    if not match:
        raise UsageError(f"{option} {text}: not an interval", f"for example {option} 30min, 6h or 1d")
    seconds = float(match[1]) * units[match[2]]
    if seconds > 1000 * 86400:
        raise UsageError(f"{option} {text}: longer than 1000 days", f"for example {option} 7d")
    return seconds
