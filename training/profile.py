"""``python -m shardmill.training.profile NAME[@V]``: measure the stages of reading and find the bottleneck.

Each stage is measured alone on one thread, over the records of the train split in the order of training; then
the batches, the pipeline, and with ``--model`` the training steps of the configuration. Only the
picture is written. With ``--torch`` a PyTorch loader is measured instead, with several numbers of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.errors import UsageError
from shardmill.infra.html.charts import Bar, grouped_bars
from shardmill.infra.processes.job_command import JobParser, deliver, settings_of
from shardmill.infra.processes.process import exit_at_once, num_cpus, own_peak_rss_bytes, run_main
from shardmill.infra.storage.local import writes
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.config import TrainConfig
from shardmill.training.dataset import Dataset
from shardmill.training.frameworks import quiet, start
from shardmill.training.order import Order, order_from_settings
from shardmill.training.profiling.bottleneck import Rates, find_bottleneck, measure_rates, transfer
from shardmill.training.profiling.stages import Stage, Subject, measure_stages
from shardmill.training.profiling.workers import image_size, measure_workers, propose
from shardmill.training.reading import open_records
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.run.framework import Framework
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tasks.settings import settings_for


def _parser() -> JobParser:
    parser = JobParser(
        "python -m shardmill.training.profile",
        "Measure each stage of reading alone, and all of them together.",
        "example: python -m shardmill.training.profile clothing --set model.name=ResNet50 --model",
    )
    parser.add_argument(
        "dataset", metavar="NAME[@VERSION][?QUERY]", help="dataset; the newest version by default"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="to spend on each measurement")
    parser.add_argument(
        "--model", action="store_true", help="measure training steps of the configuration too"
    )
    parser.add_argument(
        "--torch", action="store_true", help="measure numbers of workers of a PyTorch loader instead"
    )
    parser.add_argument("--picture", metavar="FILE.svg", type=Path, help="draw it, too")
    parser.add_job_arguments("train")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    config = settings_of(args, TrainConfig, "train")
    if args.torch and (args.model or args.picture):
        raise UsageError("--torch measures a loader alone", "leave out --model and --picture")
    with shown_to_people():
        if args.torch:
            result = profile_workers(args.dataset, config, args.root, seconds=args.seconds)
        else:
            result = profile(args.dataset, config, args.root, seconds=args.seconds, model=args.model)
    if args.picture is not None:
        _write_picture(args.picture, result)
        result["picture"] = str(args.picture)
    deliver(args, result, summary_of_workers if args.torch else summary)
    return 0


def profile(
    ref: str, config: TrainConfig, root: str | Path, *, seconds: float = 2.0, model: bool = False
) -> dict[str, Any]:
    """Measure how the train split of a dataset is read under a configuration.

    Args:
        ref: ``name`` or ``name@version``.
        config: the configuration of the training run.
        root: the folder of the datasets.
        seconds: the time to spend on each measurement.
        model: measure training steps too.

    Returns:
        JSON-able: the measurements (``stages``: microseconds of one core per image; ``rates``: images a
        second together), and the ``bottleneck`` with ``reason`` and ``remedy``.

    Raises:
        NotFoundError: there is no such dataset. CorruptDataError: it is damaged.
        ConfigError: a setting does not fit the labels. UsageError: no model can learn them.
    """
    version = Catalog(root).open_view(ref)
    config = settings_for(config, version)
    records = open_records(version, Dataset(version).table("train"))
    table = records.table
    order = order_from_settings(config.data, table, version.manifest.classes)
    with quiet():  # the model's file may import its framework
        objects = kind_of(version, config.data.objects).objects(version, "train")
        spec = ExampleSpec.of_settings(config, objects)
    subject = Subject(records, order, spec, seconds)
    stages = measure_stages(subject, lambda name: events.log(f"measuring {name}"))
    transfers, rates = _together(subject, config, version, order, model=model)
    stages += transfers
    side = float(np.median(np.minimum(table.height, table.width)))
    found = find_bottleneck(
        stages, rates, num_cpus=num_cpus(), stored_side=side, image_size=subject.image_size
    )
    return {
        "dataset": version.name,
        "version": version.version,
        **version.describe_view(),
        "container": version.manifest.container,
        "image_size": subject.image_size,
        "batch_size": order.global_batch_size,
        "model": config.model.name if model else None,
        "num_cpus": num_cpus(),
        "stages": [
            asdict(stage) | {"images_per_second": round(stage.images_per_second(num_cpus()), 1)}
            for stage in stages
        ],
        "rates": {name: round(rate, 1) for name, rate in asdict(rates).items() if rate is not None},
        "bottleneck": asdict(found),
        "peak_rss_bytes": own_peak_rss_bytes(),
    }


def profile_workers(
    ref: str, config: TrainConfig, root: str | Path, *, seconds: float = 2.0
) -> dict[str, Any]:
    """Measure a PyTorch loader of the train split with several numbers of workers.

    Args:
        ref: ``name`` or ``name@version``.
        config: the configuration of the training run.
        root: the folder of the datasets.
        seconds: the time to spend on each measurement.

    Returns:
        JSON-able: the measurements (``workers``), and the ``proposal`` with ``num_workers`` and ``reason``.

    Raises:
        NotFoundError: there is no such dataset. CorruptDataError: it is damaged.
        EnvironmentFault: PyTorch is not installed.
    """
    version = Catalog(root).open_view(ref)
    rates = measure_workers(version, config, seconds, lambda name: events.log(f"measuring {name}"))
    return {
        "dataset": version.name,
        "version": version.version,
        **version.describe_view(),
        "image_size": image_size(config),
        "batch_size": config.data.global_batch_size,
        "num_cpus": num_cpus(),
        "workers": [
            {
                "num_workers": rate.num_workers,
                "images_per_second": round(rate.images_per_second, 1),
                "first_batch_seconds": round(rate.first_batch_seconds, 2),
            }
            for rate in rates
        ],
        "proposal": asdict(propose(rates)),
    }


def _together(
    subject: Subject, config: TrainConfig, version: DatasetVersion, order: Order, *, model: bool
) -> tuple[list[Stage], Rates]:
    # The framework loads only now, so that wrong arguments fail at once.
    framework: Framework = start(config.run.framework, config)

    def on_stage(name: str) -> None:
        events.log(f"measuring {name}")

    transfers = []
    if framework.peak_device_bytes():  # of GPUs
        on_stage("transfer")
        transfers.append(transfer(subject, framework))
    rates = measure_rates(subject, config, version, order, framework, on_stage, model=model)
    return transfers, rates


def _write_picture(path: Path, result: dict[str, Any]) -> None:
    slowest = result["bottleneck"]["stage"]
    alone = [
        Bar(each["name"], cost, f"{cost:,.1f} µs", each["detail"], is_marked=each["name"] == slowest)
        for each in result["stages"]
        for cost in (each["microseconds"],)
    ]
    together = [
        Bar(name, rate, f"{rate:,.0f} images/s", is_marked=name == slowest)
        for name, rate in result["rates"].items()
    ]
    title = (
        f"{reference_of(result)}: {result['image_size']} pixels, batches of "
        f"{result['batch_size']}, {result['num_cpus']} CPUs"
    )
    groups = {"each stage alone, µs of one core per image": alone, "all together, images a second": together}
    with writes(path):
        path.write_text(grouped_bars(title, groups), encoding="utf-8")


def summary(result: dict[str, Any]) -> str:
    """Summarize the result in a few lines."""
    lines = [f"{'stage':<20}{'µs an image':>14}{'images/s alone':>18}"]
    for stage in result["stages"]:
        figures = f"{stage['microseconds']:>14,.1f}{stage['images_per_second']:>18,.0f}"
        lines.append(f"{stage['name']:<20}{figures}  {stage['detail']}")
    lines += [f"{name:<34}{rate:>18,.0f}  together" for name, rate in result["rates"].items()]
    found = result["bottleneck"]
    lines += [f"bottleneck: {found['stage']}: {found['reason']}", f"remedy: {found['remedy']}"]
    return "\n".join(lines)


def summary_of_workers(result: dict[str, Any]) -> str:
    """Summarize the result of ``profile_workers`` in a few lines."""
    lines = [f"{'num_workers':>11}{'images/s':>12}{'first batch, s':>17}"]
    for rate in result["workers"]:
        figures = f"{rate['images_per_second']:>12,.0f}{rate['first_batch_seconds']:>17.2f}"
        lines.append(f"{rate['num_workers']:>11}{figures}")
    found = result["proposal"]
    return "\n".join([*lines, f"proposal: num_workers={found['num_workers']}: {found['reason']}"])


if __name__ == "__main__":
    # The result is written. Exit without Python's clean-up, during which TensorFlow's threads may still run.
    exit_at_once(main())
