"""show --augmented: write a picture of augmented training examples."""

from __future__ import annotations

from pathlib import Path

from shardmill.flows.cli import output
from shardmill.flows.flow_runs.jobs.job_settings import train_settings
from shardmill.flows.parameters import root_or_default
from shardmill.infra.processes.children import result_of
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.infra.readable import counted

# In a process of its own: it reads as training does, and may need TensorFlow.
COMMAND = tuple(python_module("shardmill.training.show_augmented"))


def write(
    ref: str, root: str | None, out: Path, config: Path | None, overrides: list[str], json_output: bool
) -> None:
    """Write the picture and print its path.

    Args:
        ref: ``name@version``.
        root: Folder of the datasets; None is the default.
        out: File of the picture.
        config: File with settings of training.
        overrides: Single settings of training, ``KEY=VALUE``.
        json_output: Print JSON.

    Raises:
        UsageError: A setting or the file's name is wrong.
        StorageError: The file cannot be written.
    """
    settings = train_settings(config, overrides)
    command = [*COMMAND, ref, "--root", root_or_default(root), "--out", str(out)]
    result = result_of([*command, *config_arguments(settings.model_dump_json())])
    if json_output:
        output.print_json(result)
        return
    examples = counted(result["num_examples"], "training example")
    epochs = counted(result["num_epochs"], "epoch")
    output.say(f"Wrote {out}: {examples} of {ref}, as stored and in {epochs}")
