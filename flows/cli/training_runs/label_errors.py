"""label-errors: likely label errors of the train split, by models that have not seen the examples."""

from __future__ import annotations

from typing import Annotated

import typer

from shardmill.flows.cli import options
from shardmill.flows.cli.jobs.flags import with_flags
from shardmill.infra.processes.python_module import python_module

Folds = Annotated[
    int, typer.Option("--folds", metavar="N", min=2, max=100, help="Number of folds, and of trainings")
]


@with_flags("train")
def label_errors(
    dataset: options.ViewRef,
    folds: Folds = 5,
    devices: options.Devices = None,
    workers: options.Workers = None,
    root: options.Root = None,
    runs: options.Runs = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    json_output: options.Json = False,
) -> None:
    """List likely label errors of the train split.

    It trains K models, each without one fold, which the model then predicts. Each fold is a training run.
    After an interruption the same command goes on where it stopped.

    Examples:
      shardmill label-errors photos
      shardmill label-errors photos@3 --folds 10 --recipe clothing-from-scratch-cpu
    """
    from shardmill.flows.cli import output
    from shardmill.flows.cli.jobs.settings import train_settings
    from shardmill.flows.cli.training_runs.folder import runs_location
    from shardmill.flows.parameters import root_or_default
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.infra.processes.children import result_of
    from shardmill.infra.processes.job_command import config_arguments
    from shardmill.training.config import with_devices
    from shardmill.training.label_errors import summary

    settings = with_devices(train_settings(config, overrides or [], recipe), devices, workers)
    folder = root_or_default(root)
    ref = Catalog(folder).open_view(dataset).ref
    command = python_module("shardmill.training.label_errors", ref, "--folds", str(folds))
    command += ["--root", folder, "--runs", runs_location(runs)]
    command += config_arguments(settings.model_dump_json())
    result = result_of(command)
    if json_output:
        output.print_json(result)
    else:
        output.say(*summary(result).splitlines())
