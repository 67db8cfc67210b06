"""Train a run once: return the result of a finished run, and keep the result of a new one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.signing import SigningKey
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.aliases.history import aliases_by_run
from shardmill.training.config import TrainConfig
from shardmill.training.export.signatures import remove_signatures, sign_exports
from shardmill.training.results.run_files.run_folder import RESULT_FILE, decode_result
from shardmill.training.run.files.lengthening import finished_answer


def finished_result(folder: Storage, config: TrainConfig) -> dict[str, Any] | None:
    """Return the result of a finished run; None if it has not finished, or if more epochs are asked for.

    A run of an earlier release whose best model had diverged has not finished.
    """
    if not folder.exists(RESULT_FILE):
        return None
    result = decode_result(folder.read_bytes(RESULT_FILE), f"{folder.uri}/{RESULT_FILE}")
    best = result.get("best") or {}
    loss = best.get("loss", 0.0)
    if loss is None or not math.isfinite(loss):
        events.log(
            f"the best model of {folder.uri} had diverged (loss {loss}): the run goes back to "
            "its last sound checkpoint",
            level="warning",
        )
        return None
    return finished_answer(result, config.run.epochs)


def train_once(config: TrainConfig, folder: Storage, train: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Train unless the run has finished, and write ``result.json``. The caller holds the lock on the folder.

    Args:
        config: the configuration of the run.
        folder: the folder of the run.
        train: trains the run to its end, and returns the result.

    Returns:
        The result, JSON-able; ``unchanged`` is true if the run had finished before.

    Raises:
        UsageError: a finished run that would be replaced or lengthened has an alias.
        ShardmillError: ``train`` failed.
    """
    started = events.work_clock()
    folder.sweep()  # the unfinished files of a killed process, at times a whole checkpoint
    answer = None if config.run.fresh else finished_result(folder, config)
    if answer is not None:
        return answer
    if folder.exists(RESULT_FILE):
        _check_not_in_use(folder)
    key = None if config.export.signing_key is None else SigningKey(config.export.signing_key)
    if config.run.fresh:
        _clear(folder)
    try:
        result = train()
    except ConfigError:
        _forget_if_empty(folder)
        raise
    if key is None:
        remove_signatures(Path(folder.uri))
    else:
        sign_exports(Path(folder.uri), key)
    result |= {"seconds": round(events.work_clock() - started, 3)}
    folder.write_atomic(RESULT_FILE, dump_json(result, indent=1).encode("ascii"))
    return result


def _check_not_in_use(folder: Storage) -> None:
    """Raise UsageError if a finished run that is about to be replaced or lengthened has an alias."""
    run_dir = Path(folder.uri)
    aliases = aliases_by_run(Storage.at(run_dir.parent)).get(run_dir.name)
    if aliases:
        raise UsageError(
            f"{run_dir.name} has the alias {' and '.join(aliases)}; this training would replace its model",
            "train a run of its own, for example with another data.seed, and promote that one",
        )


def _clear(folder: Storage) -> None:
    """Remove a whole run, its result first: a run that is half removed must not count as finished."""
    folder.delete(RESULT_FILE)
    folder.delete_tree("")


def _forget_if_empty(folder: Storage) -> None:
    """Remove the folder of a run that was refused before it wrote anything."""
    if not folder.list_folders():
        folder.delete_tree("")
