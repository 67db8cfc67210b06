"""The jobs of the flows: the command of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardmill.infra.processes.job_command import config_arguments, python_module

if TYPE_CHECKING:
    from shardmill.training.config import TrainConfig
    from shardmill.training.promotion.rules import PromotionRules

TRAIN: tuple[str, ...] = tuple(python_module("shardmill.training.train"))
PROFILE: tuple[str, ...] = tuple(python_module("shardmill.training.profile"))
PREDICT: tuple[str, ...] = tuple(python_module("shardmill.training.predict"))
EVALUATE: tuple[str, ...] = tuple(python_module("shardmill.training.evaluate"))
PROMOTE: tuple[str, ...] = tuple(python_module("shardmill.training.promote"))

# Ending of a file of predictions -> its format.
ENDINGS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def train_command(dataset: str, root: str, runs: str, config: TrainConfig) -> list[str]:
    """The command that trains on a dataset (``NAME[@VERSION][?QUERY]``)."""
    given = [dataset, "--root", root, "--runs", runs]
    return [*TRAIN, *given, *config_arguments(config.model_dump_json())]


def evaluate_command(run: str, split: str, dataset: str | None, root: str, runs: str) -> list[str]:
    """The command that evaluates a run on a split, of another dataset version if one is named."""
    given = [run, "--split", split, "--root", root, "--runs", runs]
    return [*EVALUATE, *given, *(["--dataset", dataset] if dataset is not None else [])]


def promote_command(
    run: str, alias: str, reason: str | None, rules: PromotionRules, root: str, runs: str
) -> list[str]:
    """The command that decides about an alias and a run, by hand if there is a reason."""
    given = [run, "--alias", alias, "--root", root, "--runs", runs]
    given += config_arguments(rules.model_dump_json())
    return [*PROMOTE, *given, *(["--reason", reason] if reason is not None else [])]


def predict_command(run: Path, kind: str, out: Path, root: str, *, overlays: bool) -> list[str]:
    """The command that predicts image files with a run; further arguments name the files."""
    given = [str(run), "--format", kind, "--out", str(out.absolute()), "--root", root]
    return [*PREDICT, *given, *(["--overlays"] if overlays else [])]
