"""Read and check the settings and the source of a job, and return its command.

For the commands, the flows and the functions of Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shardmill.flows.parameters import absolute
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.infra.settings import Settings, load_settings, nested, split_overrides
from shardmill.infra.storage.locations import check_dataset_name
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.recipes import recipe_path

if TYPE_CHECKING:
    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.beam_jobs.request import JobRequest
    from shardmill.training.config import TrainConfig
    from shardmill.training.promotion.rules import PromotionRules


S = TypeVar("S", bound="Settings")

TRAIN: tuple[str, ...] = tuple(python_module("shardmill.training.train"))
PROFILE: tuple[str, ...] = tuple(python_module("shardmill.training.profile"))
PREDICT: tuple[str, ...] = tuple(python_module("shardmill.training.predict"))
EVALUATE: tuple[str, ...] = tuple(python_module("shardmill.training.evaluate"))
PROMOTE: tuple[str, ...] = tuple(python_module("shardmill.training.promote"))

# Ending of a file of predictions -> its format.
ENDINGS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def models_of_runs() -> dict[str, type[Settings]]:
    """The settings that a run takes, by their section: prepare and train."""
    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.training.config import TrainConfig

    return {"prepare": PrepareConfig, "train": TrainConfig}


def load_job_settings(
    model: type[S],
    section: str,
    config: str | Path | None,
    overrides: Sequence[str] = (),
    recipe: str | None = None,
    base: Mapping[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
) -> S:
    """Load the settings of one section from a recipe, a file, overrides and a mapping, each before the next.

    Args:
        model: the section's model.
        section: "prepare" or "train".
        config: a TOML file.
        overrides: each as KEY=VALUE.
        recipe: name of a recipe, which may have settings of both sections.
        base: nested values that take the place of defaults.
        given: settings by their names or as nested tables; they win over all others.

    Raises:
        ConfigError: a setting is unknown or wrong. UsageError: one is given twice.
    """
    _check_given_once(overrides)
    return load_settings(
        model,
        section=section,
        base=base,
        recipe=None if recipe is None else recipe_path(recipe),
        config=config,
        overrides=overrides,
        given=nested(given or {}, model),
        elsewhere={name: other for name, other in models_of_runs().items() if name != section},
    )


def prepare_settings(
    config: Path | None,
    overrides: list[str],
    failure_budget: float | None = None,
    recipe: str | None = None,
    base: Mapping[str, Any] | None = None,
) -> PrepareConfig:
    """Load the settings of prepare for a command; ``base`` has nested values in place of defaults."""
    from shardmill.beam_jobs.config import PrepareConfig

    given = {} if failure_budget is None else {"failure_budget": failure_budget}
    return load_job_settings(PrepareConfig, "prepare", config, overrides, recipe, base, given)


def train_settings(config: Path | None, overrides: list[str], recipe: str | None = None) -> TrainConfig:
    """Load the settings of training for a command, and check that the user's own code is where they say."""
    from shardmill.training.config import TrainConfig, own_code

    settings = load_job_settings(TrainConfig, "train", config, overrides, recipe)
    for code in own_code(settings):
        code.check()
    return settings


def settings_by_section(overrides: list[str]) -> dict[str, list[str]]:
    """Sort the overrides of a command that prepares and trains by section.

    Raises:
        ConfigError: several sections have a key, or none has.
    """
    return split_overrides(overrides, models_of_runs())


def _check_given_once(overrides: Sequence[str]) -> None:
    """Check that no setting is given twice with different values.

    Raises:
        UsageError: one is.
    """
    found: dict[str, str] = {}
    for override in overrides:
        key = override.partition("=")[0].strip()
        if found.setdefault(key, override) != override:
            raise UsageError(
                f"{found[key]} and {override}: a setting is given twice", "leave one of them out"
            )


def job_request(
    source: str, dataset: str, root: str, load: Callable[..., PrepareConfig], *, as_is: bool
) -> JobRequest:
    """Return the request of a prepare whose source is there.

    Args:
        source: folder, file or pattern, as the user wrote it.
        dataset: name of the dataset.
        root: folder of the datasets.
        load: loads the settings; takes nested values that stand in for defaults as ``base``.
        as_is: take a dataset of another library over; what is recognised is said on standard error.

    Raises:
        UsageError: the source is not there or not recognised. ConfigError: a setting is wrong.
    """
    from shardmill.beam_jobs.request import JobRequest

    if not as_is:
        config = load()
        place = checked_source(source, dataset, config.source.kind)
        return JobRequest(source=place, dataset=dataset, root=root, config=config)
    from shardmill.beam_jobs.sources.recognition.importing import import_request

    place = checked_source(source, dataset, "auto")
    with shown_to_people():
        return import_request(place, dataset, root, lambda base: load(base=base))


def checked_source(source: str, dataset: str, kind: str = "image_folder") -> str:
    """The source as an absolute path or URI. Obvious mistakes are reported before Prefect starts."""
    check_dataset_name(dataset)
    if not source.strip():
        raise UsageError("which folder? SOURCE is empty", "give a folder of images, or . for this one")
    place = absolute(source)
    takes_files = kind not in ("image_folder", "table", "urls", "tfds")
    if takes_files and (Path(place).is_file() or any(mark in place for mark in "*?")):
        return place
    if source.startswith(("http://", "https://")) and kind != "urls":
        raise UsageError(
            f"source {source} is a web address, which is not read",
            "download it and give the folder; a table of addresses is read by --source-kind urls",
        )
    if "://" not in place and not Path(place).is_dir():
        what = "is a file, not a folder" if Path(place).exists() else "does not exist"
        remedy = "give a folder of images, with one folder a class"
        if Path(place).is_file():
            remedy += "; or set source.kind=auto (--source-kind auto) if the images are in the file"
        elif scheme := re.match("(s3|gs|abfss?|az|hf|file):/*", source):
            remedy = f"write {scheme[1]}://{source[scheme.end() :]}"
        raise NotFoundError(f"source {source} {what}", remedy)
    return place


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
