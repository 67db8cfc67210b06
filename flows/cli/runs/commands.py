"""prepare, train and run: each command runs a flow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from shardmill.beam_jobs.summaries import version_lines
from shardmill.flows import home
from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at
from shardmill.flows.cli.help import explained_below
from shardmill.flows.cli.runs.flags import with_flags
from shardmill.flows.flow_runs.jobs import (
    job_request,
    prepare_settings,
    settings_by_section,
    train_command,
    train_settings,
)
from shardmill.flows.parameters import absolute, root_or_default, runs_or_default
from shardmill.infra.dataset.views.references import joined_text, reference_of
from shardmill.infra.processes.children import result_of
from shardmill.training.ranks.launchers import is_rendering

if TYPE_CHECKING:
    from shardmill.beam_jobs.request import JobRequest


def _kinds_of_sources() -> tuple[str, list[tuple[str, str]]]:
    from shardmill.beam_jobs.config.known_kinds import described_kinds

    rows = [
        (
            kind["kind"],
            kind["description"].replace("``", "")
            + ("" if kind["recognised"] else " Not recognised by auto."),
        )
        for kind in described_kinds()
    ]
    return "Kinds of sources (their settings: shardmill settings source):", rows


@explained_below(_kinds_of_sources)
@with_flags("prepare")
def prepare(
    source: options.SourceFolder,
    dataset: options.Dataset,
    root: options.Root = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    failure_budget: options.FailureBudget = None,
    source_kind: options.SourceKind = None,
    as_is: options.AsIs = False,
    label_edits: options.LabelEdits = None,
    runner: options.Runner = None,
    flink_master: options.FlinkMaster = None,
    dry_run: options.DryRun = False,
    now: options.Now = False,
    json_output: options.Json = False,
) -> None:
    """Turn a folder of images into a published version of a dataset.

    Examples:
      shardmill prepare photos --dataset photos
      shardmill prepare photos --dataset photos --image-size 128 --set shards.container=none
      shardmill prepare photos --dataset photos --dry-run
      shardmill prepare "shards/train-*.tar" --dataset photos --source-kind auto
      shardmill prepare ~/tensorflow_datasets/beans/0.1.0 --dataset beans --as-is
      shardmill prepare s3://bucket/photos --dataset photos --flink-master flink.example.org:8081
    """
    _take_turns(now)

    changes = _with_options(overrides or [], source_kind, runner, flink_master, label_edits)
    load = partial(prepare_settings, config, changes, failure_budget, recipe)
    request = job_request(source, dataset, root_or_default(root), load, as_is=as_is)
    if dry_run:
        _dry_run(request, json_output)
        return
    from shardmill.flows.cli.runs.flow_runs import prepare_call, run_flow

    call = prepare_call(request.source, dataset, request.root, request.config)
    _show(run_flow(call), json_output, _print_prepared)


@with_flags("train")
def train(
    datasets: options.ViewRefs,
    weights: options.Weights = None,
    devices: options.Devices = None,
    workers: options.Workers = None,
    launcher: options.Launcher = None,
    framework: options.Framework = None,
    root: options.Root = None,
    runs: options.Runs = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    now: options.Now = False,
    json_output: options.Json = False,
) -> None:
    """Train a model on one or several datasets; evaluate and export it.

    Examples:
      shardmill train photos
      shardmill train photos --recipe finetune
      shardmill train photos@3 --epochs 20 --model EfficientNetB0
      shardmill train photos@3 web --weights 0.7,0.3
      shardmill train photos --workers 4      (a process a GPU; a rank that dies costs a restart)
      shardmill train photos --framework torch --model resnet50 --set augment.mixup=0.2
    """
    _take_turns(now)
    from shardmill.training.config import with_devices

    changes = [*(overrides or []), *([] if framework is None else [f"run.framework={framework}"])]
    changes += [] if weights is None else [f"data.mixture_weights={weights}"]
    settings = with_devices(train_settings(config, changes, recipe), devices, workers, launcher)
    folder = root_or_default(root)
    # The newest version now, not when the run starts.
    ref = catalog_at(folder).open_view(joined_text(datasets)).ref
    if is_rendering(settings.ranks.launcher):
        # Without a flow: only the files of a job are written, and nothing is trained yet.
        result = result_of(train_command(ref, folder, runs_or_default(runs), settings))
        _show(result, json_output, _print_trained)
        return
    from shardmill.flows.cli.runs.flow_runs import run_flow, train_call

    result = run_flow(train_call(ref, folder, runs_or_default(runs), settings))
    _show(result, json_output, _print_trained)


@explained_below(_kinds_of_sources)
@with_flags("prepare", "train")
def run(
    source: options.SourceFolder,
    dataset: options.Dataset,
    root: options.Root = None,
    runs: options.Runs = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    failure_budget: options.FailureBudget = None,
    source_kind: options.SourceKind = None,
    as_is: options.AsIs = False,
    label_edits: options.LabelEdits = None,
    runner: options.Runner = None,
    flink_master: options.FlinkMaster = None,
    dry_run: options.DryRun = False,
    now: options.Now = False,
    json_output: options.Json = False,
) -> None:
    """Prepare a folder of images, then train on the published version.

    Examples:
      shardmill run photos --dataset photos
      shardmill run photos --dataset photos --image-size 128 --epochs 5 --set image.quality=95
    """
    _take_turns(now)

    by_section = settings_by_section(overrides or [])
    changes = _with_options(by_section["prepare"], source_kind, runner, flink_master, label_edits)
    load = partial(prepare_settings, config, changes, failure_budget, recipe)
    for_train = train_settings(config, by_section["train"], recipe)
    request = job_request(source, dataset, root_or_default(root), load, as_is=as_is)
    if dry_run:
        _dry_run(request, json_output)
        return
    from shardmill.flows.cli.runs.flow_runs import pipeline_call, run_flow

    call = pipeline_call(
        request.source, dataset, request.root, runs_or_default(runs), request.config, for_train
    )
    result = run_flow(call)
    _show(result, json_output, _print_run)


def _with_options(
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
        runner: name of the runner of the Beam jobs.
        flink_master: HOST:PORT of a Flink cluster.
        label_edits: path of a CSV as seen from here, or a URI.
    """
    from shardmill.beam_jobs.config.runner import runner_overrides

    of_source = [] if kind is None else [f"source.kind={kind}"]
    of_source += [] if label_edits is None else [f"source.label_edits={absolute(label_edits)}"]
    return [*overrides, *of_source, *runner_overrides(runner, flink_master)]


def _take_turns(now: bool) -> None:
    if not now:
        home.take_turns()


def _dry_run(request: JobRequest, json_output: bool) -> None:
    """Run the job without a flow: nothing happens that belongs into a history."""
    from shardmill.beam_jobs.request import prepare_command

    command = prepare_command(request.source, request.dataset, request.root, request.config)
    lines: list[str] = []  # an error of the job is among them, and told by the exception
    result = result_of([*command, "--dry-run"], on_line=lines.append)
    output.answer(result, json_output, *lines)


def _show(result: dict[str, Any], json_output: bool, for_people: Callable[[dict[str, Any]], None]) -> None:
    if json_output:
        output.print_json(result)
    else:
        for_people(result)


def _print_prepared(result: dict[str, Any]) -> None:
    ref = reference_of(result)
    output.say(*version_lines(result), f"Look at: shardmill show {ref}")
    if result["label_kind"] != "none":
        output.say(f"Train:   shardmill train {ref}")


def _print_trained(result: dict[str, Any]) -> None:
    from shardmill.training.run.files.summary import summary

    output.say(*summary(result).split("\n"))


def _print_run(result: dict[str, Any]) -> None:
    _print_prepared(result["prepare"])
    _print_trained(result["train"])
