"""compare: compare two training runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import runs_folder
from shardmill.flows.cli.training_runs.looking import Run, Split, whole_settings
from shardmill.flows.cli.training_runs.using import evaluate_in_child
from shardmill.flows.parameters import root_or_default
from shardmill.infra.errors import NotFoundError
from shardmill.infra.html.page import differing_settings

if TYPE_CHECKING:
    from shardmill.training.results.run_files.run_folder import RunFolder

Other = Annotated[str, typer.Argument(metavar="RUN", help="The run to compare with it")]
OnDataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="NAME[@VERSION]",
        help="Compare on this version; by default on the version that both were trained on",
    ),
]


def compare(
    first: Run,
    second: Other,
    split: Split = "test",
    dataset: OnDataset = None,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Compare two training runs on the same records.

    A paired bootstrap tells differences from noise. With --dataset, a run without predictions of that version
    is evaluated on it first.

    Examples:
      shardmill compare photos-v1-3f2a photos-v1-90bc
      shardmill compare photos-v1-3f2a photos-v1-90bc --split validation --json
      shardmill compare photos-v1-3f2a photos-v2-77cd --dataset photos@2
    """
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.training.metrics.figures import FIGURES
    from shardmill.training.results.predictions import comparison
    from shardmill.training.results.run_files.run_folder import open_run

    folder = runs_folder(runs)
    one, other = open_run(first, folder), open_run(second, folder)
    ref = None if dataset is None else Catalog(root_or_default(root)).open_view(dataset).ref
    if ref is not None:
        for each in (one, other):
            _evaluate_if_missing(each, split, ref, root_or_default(root))
    found = comparison.compare(one.predictions(split, ref), other.predictions(split, ref))
    differing = differing_settings(
        {"dataset": one.dataset, **whole_settings(one)}, {"dataset": other.dataset, **whole_settings(other)}
    )
    if json_output:
        about = {"first": one.name, "second": other.name, "dataset": ref, "split": split}
        output.print_json({**about, "settings": differing, **found.to_json()})
        return
    rows: list[list[object]] = [
        [
            FIGURES[name].words,
            FIGURES[name].exact(each.first),
            FIGURES[name].exact(each.second),
            FIGURES[name].change(each.second - each.first),
            f"{FIGURES[name].change(each.low)} to {FIGURES[name].change(each.high)}",
            _verdict(name, each),
        ]
        for name, each in found.figures.items()
    ]
    columns = ["", "first", "second", "difference", "95 % interval", ""]
    for place, run in (("first", one), ("second", other)):
        output.say(
            f"{place + ':':<7} {run.name}  ({run.dataset}, {run.changed_at.astimezone():%Y-%m-%d %H:%M})"
        )
    if differing:
        settings = [[name, *values] for name, values in differing.items()]
        output.print_table("Settings that differ", ["setting", "first", "second"], settings)
    else:
        output.say("The same settings and the same dataset version.")
    where = split if ref is None else f"{ref}, {split}"
    output.print_table(f"{where}: {output.counted(found.num_examples, 'record')}", columns, rows)
    output.say(f"Only the first is right on {found.only_first:,}, only the second on {found.only_second:,}.")


def _evaluate_if_missing(run: RunFolder, split: str, ref: str, root: str) -> None:
    """Evaluate a run on a split of a dataset version, unless it has predictions of it."""
    try:
        run.predictions(split, ref)
    except NotFoundError:
        output.note(f"evaluating {run.name} on {ref}, {split}")
        evaluate_in_child(run, split, ref, root)


def _verdict(name: str, each: Any) -> str:
    from shardmill.training.metrics.figures import is_smaller_better

    if each.low <= 0 <= each.high:
        return "no clear difference"
    is_better = (each.low > 0) != is_smaller_better(name)
    return "the second is better" if is_better else "the first is better"
