"""Decide whether a run can be trained for more epochs than it began with.

With a schedule over the whole run (cosine, one-cycle), the rate of each step depends on the length of the
run, so a longer run is another run. With a constant rate, or one that falls after given epochs, a longer run
begins with the same steps and then continues. Imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.infra.readable import counted
from shardmill.training.config import OptimizerSettings
from shardmill.training.results.run_files.run_folder import read_identity, run_names
from shardmill.training.schedules import SCHEDULES


def may_be_lengthened(optimizer: OptimizerSettings) -> bool:
    """Return whether the rates of a run's steps do not depend on its length."""
    return not SCHEDULES[optimizer.schedule].depends_on_length


def finished_answer(finished: Mapping[str, Any], epochs: int) -> dict[str, Any] | None:
    """Return the result of a finished run; None if it is to train for more epochs.

    Args:
        finished: the result of the run.
        epochs: the epochs that are asked for.
    """
    done = int(finished.get("epochs", epochs))
    if done < epochs and not finished.get("stopped_early"):
        return None
    answer = {**finished, "unchanged": True}
    if done > epochs:
        note = f"it has {counted(done, 'epoch')} and keeps them; run.epochs = {epochs} asks for fewer"
        answer["notes"] = [*finished.get("notes", ()), note]
    return answer


def check_not_past(epoch: int, step: int, epochs: int) -> None:
    """Check that a run which has reached ``step`` of ``epoch`` (both from 0) need not end before that.

    Args:
        epoch: the epoch that the run has reached.
        step: the steps of that epoch that are done.
        epochs: the epochs that are asked for.

    Raises:
        ConfigError: the run has gone beyond ``epochs``.
    """
    if epoch > epochs or (epoch == epochs and step > 0):
        raise ConfigError(
            f"run.epochs = {epochs}, but epoch {epoch + 1} of the run has begun already",
            f"set run.epochs to {epoch + 1} or more, or run.fresh=true to begin anew",
        )


def why_not_continued(identity: Mapping[str, Any], runs: Path) -> str | None:
    """Return why a new run does not continue another one that differs only in its epochs, or in its plugins.

    Args:
        identity: the identity of the run that begins.
        runs: the folder of the runs.

    Returns:
        A sentence that names the other run; None if there is no such run.
    """
    wanted, schedule = _without_epochs(identity), identity["config"]["optimizer"]["schedule"]
    plugins, depends = wanted.pop("plugins"), SCHEDULES[schedule].depends_on_length
    if not plugins and not depends:
        return None
    others = " or ".join(
        repr(name) for name, other in sorted(SCHEDULES.items()) if not other.depends_on_length
    )
    for name in run_names(runs):
        try:
            found = read_identity(runs / name)
        except CorruptDataError:  # a damaged run does not hinder another one
            continue
        other = _without_epochs(found)
        then = other.pop("plugins")
        if other == wanted and then != plugins:
            was, now = (" and ".join(f"{name} {of}" for name, of in each.items()) for each in (then, plugins))
            return f"this begins a new run: {name} was trained with {was}, and {now} is installed"
        if other == wanted and depends:
            epochs = found["config"]["run"]["epochs"]
            return (
                f"this begins a new run: {name} differs only in run.epochs ({epochs}), but with "
                f"the schedule {schedule!r} the learning rate of every step depends on that number. Runs "
                f"with optimizer.schedule = {others} can be continued with more epochs"
            )
    return None


def _without_epochs(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity, or the content of run.json, without the number of epochs."""
    config = dict(identity["config"])
    config["run"] = {name: value for name, value in config["run"].items() if name != "epochs"}
    kept = {name: identity.get(name) for name in ("plan", "dataset")}
    return {**kept, "config": config, "plugins": identity.get("plugins", {})}
