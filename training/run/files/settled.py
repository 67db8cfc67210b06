"""Settled values: a run determines them once and keeps them in run.json when it is resumed or lengthened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shardmill.infra.json_files import decode_json
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.config import TrainConfig
from shardmill.training.results.run_files.run_folder import RUN_FILE, is_run, read_identity


@dataclass(frozen=True, slots=True)
class Settled:
    """The values that a run settled when it began.

    Attributes:
        epochs: the epochs with which it began. A warm-up that is a share of the run is a share of these
            epochs, so that a lengthened run has the same first steps.
        global_batch_size: the size that was found for "auto"; None: "auto" was not asked for.
        accumulate_steps: the number of parts of a step, since a step did not fit into memory; None: as
            configured.
    """

    epochs: int
    global_batch_size: int | None = None
    accumulate_steps: int | None = None

    def with_batch_size(self, config: TrainConfig) -> TrainConfig:
        """Return the configuration with a number as ``data.global_batch_size``."""
        if self.global_batch_size is None:
            return config
        data = config.data.model_copy(update={"global_batch_size": self.global_batch_size})
        return config.model_copy(update={"data": data})

    def applied(self, config: TrainConfig, steps_per_epoch: int) -> TrainConfig:
        """Return the configuration with the settled values in place of those that it asks for."""
        if self.epochs != config.run.epochs:
            scheduled = (self.epochs - config.model.warm_head_epochs) * steps_per_epoch
            steps = config.optimizer.rising_steps(scheduled)
            optimizer = config.optimizer.model_copy(update={"warmup_steps": steps})
            config = config.model_copy(update={"optimizer": optimizer})
        if self.accumulate_steps is not None:
            run = config.run.model_copy(update={"accumulate_steps": self.accumulate_steps})
            config = config.model_copy(update={"run": run})
        return config

    def notes(self, config: TrainConfig) -> list[str]:
        """Return what a reader of the result should know.

        Args:
            config: the configuration as it was asked for.
        """
        found = []
        if self.global_batch_size is not None:
            found.append(f"data.global_batch_size = 'auto' found {self.global_batch_size}")
        if self.epochs != config.run.epochs:
            found.append(
                f"the run was lengthened: it began with run.epochs = {self.epochs}, and its warm-up stays as "
                f"long as it was then"
            )
        if self.accumulate_steps is not None:
            found.append(
                f"a step did not fit into memory: since then its examples are taken in "
                f"{self.accumulate_steps} parts (run.accumulate_steps). The global batch is the same"
            )
        return found


def settled_by(config: TrainConfig, global_batch_size: int | None = None) -> Settled:
    """Return the settings of a run with the batch size that was found in place of "auto"."""
    return Settled(config.run.epochs, global_batch_size)


def read_settled(run_dir: Path) -> Settled | None:
    """Return the values of the run in a folder; None: no run has begun there."""
    if not is_run(run_dir):
        return None
    found = read_identity(run_dir)
    # Runs of earlier releases could not be lengthened.
    settled = found.get("settled") or found["config"]["run"]
    return decode_json(
        dump_json(settled), Settled, str(run_dir / RUN_FILE), "train again with run.fresh=true"
    )


def settle_again(run_dir: Path, settled: Settled) -> None:
    """Replace the settled values in the run.json of a run."""
    record = read_identity(run_dir)
    record["settled"] = asdict(settled)
    Storage.at(run_dir).write_atomic(RUN_FILE, dump_json(record, indent=1).encode("ascii"))


def run_record(identity: Mapping[str, Any], config: TrainConfig, settled: Settled) -> bytes:
    """Return the content of run.json: identity, the epochs that are asked for, and the settled values."""
    run = {**identity["config"]["run"], "epochs": config.run.epochs}
    record = {**identity, "config": {**identity["config"], "run": run}, "settled": asdict(settled)}
    return dump_json(record, indent=1).encode("ascii")
