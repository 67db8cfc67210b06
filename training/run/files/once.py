"""Train a run once: return the result of a finished run, and keep the result of a new one."""

from __future__ import annotations

import math
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


class Once:
    """Trains a run once, and writes ``result.json``. The caller holds the lock on the folder.

    A context manager, which removes the folder of a run that was refused before it wrote anything.
    """

    def __init__(self, config: TrainConfig, folder: Storage) -> None:
        self._config = config
        self._folder = folder
        self._key: SigningKey | None = None
        self._started = events.work_clock()

    def __enter__(self) -> Once:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConfigError) and not self._folder.list_folders():
            self._folder.delete_tree("")

    def begin(self) -> dict[str, Any] | None:
        """Return the result of a finished run, ``unchanged``; None: it is to be trained.

        Raises:
            UsageError: a finished run that would be replaced or lengthened has an alias.
        """
        folder, config = self._folder, self._config
        folder.sweep()  # the unfinished files of a killed process, at times a whole checkpoint
        answer = None if config.run.fresh else finished_result(folder, config)
        if answer is not None:
            return answer
        if folder.exists(RESULT_FILE):
            _check_not_in_use(folder)
        self._key = None if config.export.signing_key is None else SigningKey(config.export.signing_key)
        if config.run.fresh:  # first the result: a run that is half removed must not count as finished
            folder.delete(RESULT_FILE)
            folder.delete_tree("")
        return None

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Sign the exports, and write the result of the run. Return it, JSON-able."""
        run_dir = Path(self._folder.uri)
        if self._key is None:
            remove_signatures(run_dir)
        else:
            sign_exports(run_dir, self._key)
        result |= {"seconds": round(events.work_clock() - self._started, 3)}
        self._folder.write_atomic(RESULT_FILE, dump_json(result, indent=1).encode("ascii"))
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
