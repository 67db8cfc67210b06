"""The jobs of the flows: the command of each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.training.config import TrainConfig
    from shardmill.training.promotion.rules import PromotionRules

PREPARE: tuple[str, ...] = (sys.executable, "-m", "shardmill.beam_jobs.prepare")
TRAIN: tuple[str, ...] = (sys.executable, "-m", "shardmill.training.train")
PROFILE: tuple[str, ...] = (sys.executable, "-m", "shardmill.training.profile")
EVALUATE: tuple[str, ...] = (sys.executable, "-m", "shardmill.training.evaluate")
PROMOTE: tuple[str, ...] = (sys.executable, "-m", "shardmill.training.promote")


def prepare_command(source: str, dataset: str, root: str, config: PrepareConfig) -> list[str]:
    """The command that prepares a source as a version of a dataset."""
    given = [source, "--dataset", dataset, "--root", root]
    return [*PREPARE, *given, "--config-json", config.model_dump_json()]


def train_command(dataset: str, root: str, runs: str, config: TrainConfig) -> list[str]:
    """The command that trains on a dataset (``NAME[@VERSION][?QUERY]``)."""
    given = [dataset, "--root", root, "--runs", runs]
    return [*TRAIN, *given, "--config-json", config.model_dump_json()]


def evaluate_command(run: str, split: str, dataset: str | None, root: str) -> list[str]:
    """The command that evaluates a run on a split, of another dataset version if one is named."""
    given = [run, "--split", split, "--root", root]
    return [*EVALUATE, *given, *(["--dataset", dataset] if dataset is not None else [])]


def promote_command(
    run: str, alias: str, reason: str | None, rules: PromotionRules, root: str, runs: str
) -> list[str]:
    """The command that decides about an alias and a run, by hand if there is a reason."""
    given = [run, "--alias", alias, "--root", root, "--runs", runs]
    given += ["--config-json", rules.model_dump_json()]
    return [*PROMOTE, *given, *(["--reason", reason] if reason is not None else [])]
