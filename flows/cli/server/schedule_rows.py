"""Print schedules, inboxes and rules of training."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shardmill.flows.cli import output
from shardmill.infra.storage.locations import public_location, public_values

if TYPE_CHECKING:
    from shardmill.flows.scheduling.inboxes import Inbox
    from shardmill.flows.server.automations import TrainingRule
    from shardmill.flows.server.schedules import Schedule

RULE_NAME = "train-when"  # name of a dataset's rule of training among its schedules


def schedule_entries(found: Sequence[Schedule | Inbox]) -> list[dict[str, Any]]:
    """The schedules as values of JSON."""
    return [
        {
            **public_values(dict(entry.parameters)),
            "flow": entry.flow,
            "dataset": entry.dataset,
            "name": entry.name,
            "when": str(entry),
            "active": entry.is_active,
            "problem": _problem(entry),
            "next": _next(entry),
        }
        for entry in found
    ]


def rule_entries(rules: Sequence[TrainingRule]) -> list[dict[str, Any]]:
    """The rules of training as values of JSON."""
    return [
        {
            **public_values(dict(rule.parameters)),
            "dataset": rule.dataset,
            "name": RULE_NAME,
            "every_seconds": rule.every.total_seconds(),
            "active": rule.is_active,
            "problem": rule.problem,
        }
        for rule in rules
    ]


def rule_in_words(rule: TrainingRule) -> str:
    """The conditions of a rule of training."""
    from shardmill.flows.train_when import TrainWhen, in_words

    then = ", then promoted if better" if rule.parameters.get("promote") else ""
    return f"{in_words(TrainWhen.model_validate(rule.parameters.get('when', {})))}{then}"


def print_schedules(found: Sequence[Schedule | Inbox], rules: Sequence[TrainingRule] = ()) -> None:
    """Print the schedules for people."""
    if not found and not rules:
        output.say("No schedules. Make one: shardmill schedule add SOURCE --dataset NAME --every 1h")
        return
    rows = [
        [
            entry.flow,
            entry.dataset,
            entry.name,
            f"{entry}{_marks(entry)}",
            in_local_time(_next(entry)) if entry.is_active else "",
            public_location(entry.parameters.get("source", "")),
        ]
        for entry in found
    ]
    for rule in rules:
        when = f"{rule_in_words(rule)}{_marks(rule)}"
        rows.append(["train", rule.dataset, RULE_NAME, when, "", ""])
    output.print_table("Schedules", ["flow", "dataset", "name", "when", "next", "source"], rows)


def in_local_time(moment: str | float | None) -> str:
    """A moment (ISO 8601, or seconds since 1970) in the time zone of this machine."""
    if not moment:
        return ""
    at = (
        datetime.fromisoformat(moment)
        if isinstance(moment, str)
        else datetime.fromtimestamp(moment).astimezone()
    )
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _problem(entry: Schedule | Inbox | TrainingRule) -> str:
    return str(getattr(entry, "problem", ""))


def _marks(entry: Schedule | Inbox | TrainingRule) -> str:
    marks = ([] if entry.is_active else ["paused"]) + ([_problem(entry)] if _problem(entry) else [])
    return f" ({'; '.join(marks)})" if marks else ""


def _next(entry: Schedule | Inbox) -> str | None:
    at = getattr(entry, "next_at", None)
    return None if at is None else str(at.isoformat())
