"""Read and check the settings and the source that are given to a command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmill.infra.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.beam_jobs.request import JobRequest
    from shardmill.infra.settings import Settings
    from shardmill.training.config import TrainConfig


def models_of_runs() -> dict[str, type[Settings]]:
    """The settings that a run takes, by their section: prepare and train."""
    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.training.config import TrainConfig

    return {"prepare": PrepareConfig, "train": TrainConfig}


def prepare_settings(
    config: Path | None,
    overrides: list[str],
    failure_budget: float | None = None,
    recipe: str | None = None,
    base: Mapping[str, Any] | None = None,
) -> PrepareConfig:
    """The settings of prepare from a recipe, a file and single overrides, checked.

    ``base`` has nested values that stand in for defaults.
    """
    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.infra.settings import load_settings
    from shardmill.training.config import TrainConfig

    _check_given_once(overrides)
    given = {} if failure_budget is None else {"failure_budget": failure_budget}
    return load_settings(
        PrepareConfig,
        section="prepare",
        base=base,
        recipe=_file_of(recipe),
        config=config,
        overrides=overrides,
        given=given,
        elsewhere={"train": TrainConfig},
    )


def train_settings(config: Path | None, overrides: list[str], recipe: str | None = None) -> TrainConfig:
    """The settings of training from a recipe, a file and single overrides, checked; own code is there."""
    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.infra.settings import load_settings
    from shardmill.training.config import TrainConfig, own_code

    _check_given_once(overrides)
    settings = load_settings(
        TrainConfig,
        section="train",
        recipe=_file_of(recipe),
        config=config,
        overrides=overrides,
        elsewhere={"prepare": PrepareConfig},
    )
    for code in own_code(settings):
        code.check()
    return settings


def settings_by_section(overrides: list[str]) -> dict[str, list[str]]:
    """Sort the overrides of a command that prepares and trains by section.

    Raises:
        ConfigError: several sections have a key, or none has.
    """
    from shardmill.infra.settings import split_overrides

    return split_overrides(overrides, models_of_runs())


def _check_given_once(overrides: list[str]) -> None:
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


def _file_of(recipe: str | None) -> Path | None:
    """The configuration file of a recipe; a recipe may have settings of both commands."""
    from shardmill.training.recipes import recipe_path

    return None if recipe is None else recipe_path(recipe)


def with_options(
    overrides: list[str],
    kind: str | None,
    runner: str | None,
    flink_master: str | None,
    label_edits: str | None = None,
) -> list[str]:
    """Return the overrides of prepare, and those that its command-line options stand for.

    Args:
        overrides: each as KEY=VALUE.
        kind: kind of the source.
        runner: settings of the runner of the Beam jobs.
        flink_master: HOST:PORT of a Flink cluster.
        label_edits: path of a CSV as seen from here, or a URI.
    """
    from shardmill.beam_jobs.config.runner import runner_overrides
    from shardmill.flows.parameters import absolute

    of_source = [] if kind is None else [f"source.kind={kind}"]
    of_source += [] if label_edits is None else [f"source.label_edits={absolute(label_edits)}"]
    return [*overrides, *of_source, *runner_overrides(runner, flink_master)]


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
    from shardmill.infra.progress import shown_to_people

    place = checked_source(source, dataset, "auto")
    with shown_to_people():
        return import_request(place, dataset, root, lambda base: load(base=base))


def checked_source(source: str, dataset: str, kind: str = "image_folder") -> str:
    """The source as an absolute path or URI. Obvious mistakes are reported before Prefect starts."""
    from shardmill.flows.parameters import absolute
    from shardmill.infra.storage.names import check_dataset_name

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
        elif scheme := re.match("(s3|gs|abfss?|az|file):/*", source):
            remedy = f"write {scheme[1]}://{source[scheme.end() :]}"
        raise NotFoundError(f"source {source} {what}", remedy)
    return place
