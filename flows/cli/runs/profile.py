"""profile: measure the stages of reading a dataset, and find the bottleneck."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.flow_runs.jobs import PROFILE, train_settings
from shardmill.flows.parameters import root_or_default
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.processes.children import result_of
from shardmill.infra.processes.job_command import config_arguments

Seconds = Annotated[
    float, typer.Option("--seconds", metavar="S", min=0.1, help="Duration of each measurement")
]
Model = Annotated[bool, typer.Option("--model", help="Measure training steps of the configuration too")]
Torch = Annotated[
    bool, typer.Option("--torch", help="Measure numbers of workers of a PyTorch loader, and propose one")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE.svg", help="Draw the result in this file")]


def profile(
    dataset: options.ViewRef,
    seconds: Seconds = 2.0,
    model: Model = False,
    torch: Torch = False,
    out: Out = None,
    root: options.Root = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    json_output: options.Json = False,
) -> None:
    """Measure the stages of reading, and name the bottleneck.

    Each stage alone, then all together. Writes nothing but the picture.

    Examples:
      shardmill profile photos
      shardmill profile photos --model --set model.name=ResNet50 --out profile.svg
      shardmill profile photos --torch --set data.image_size=224
    """
    settings = train_settings(config, overrides or [])
    command = [*PROFILE, dataset, "--root", root_or_default(root), "--seconds", str(seconds)]
    command += [*config_arguments(settings.model_dump_json()), *(["--model"] if model else [])]
    command += ["--torch"] if torch else []
    command += ["--picture", str(out.absolute())] if out is not None else []
    result = result_of(command)
    if json_output:
        output.print_json(result)
    elif torch:
        _show_workers(result)
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    output.say(_subject(result))
    rows = [
        [stage["name"], stage["microseconds"], stage["images_per_second"], stage["detail"]]
        for stage in result["stages"]
    ]
    output.print_table("Each stage alone", ["stage", "µs of a core", "images/s", ""], rows)
    together = [[name, rate] for name, rate in result["rates"].items()]
    output.print_table("All together", ["", "images/s"], together)
    found = result["bottleneck"]
    output.say(f"Bottleneck: {found['stage']}: {found['reason']}", f"Remedy:     {found['remedy']}")
    if result.get("picture"):
        output.say(f"Picture:    {result['picture']}")


def _show_workers(result: dict[str, Any]) -> None:
    output.say(_subject(result))
    rows = [
        [rate["num_workers"], rate["images_per_second"], rate["first_batch_seconds"]]
        for rate in result["workers"]
    ]
    output.print_table("A PyTorch loader", ["num_workers", "images/s", "first batch, s"], rows)
    found = result["proposal"]
    output.say(f"Proposal: num_workers={found['num_workers']}: {found['reason']}")


def _subject(result: dict[str, Any]) -> str:
    return (
        f"{reference_of(result)}: batches of {result['batch_size']} at "
        f"{result['image_size']} pixels, {output.counted(result['num_cpus'], 'CPU')}"
    )
