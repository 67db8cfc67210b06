"""``python -m shardmill.beam_jobs.prepare``: turn a folder of images into a published dataset version.

Reads the configuration, runs the job in this process, shows its progress, and prints its result. Needs no
Prefect.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardmill.infra.lineage import LineageDataset, reported_job
from shardmill.infra.processes.job_command import JobParser, settings_of
from shardmill.infra.processes.process import exit_at_once, run_main
from shardmill.infra.progress import result, work_clock
from shardmill.infra.storage.locations import absolute_path, below, uri_of
from shardmill.infra.strict_json import dump_json
from shardmill.infra.whole_job import shown_to_people

if TYPE_CHECKING:  # --help is quick
    from shardmill.beam_jobs.request import JobRequest

_M_ARENA_MAX = -8  # mallopt(3)
_EXAMPLES = """\
examples:
  python -m shardmill.beam_jobs.prepare photos --dataset photos
  python -m shardmill.beam_jobs.prepare photos --dataset photos --dry-run
  python -m shardmill.beam_jobs.prepare photos --dataset small --set image.size=128
"""


def run_prepare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the job that a command line asks for.

    Returns:
        The result of the job, JSON-able, with ``seconds`` (wall time of the whole, without waiting for other
        jobs) and ``peak_memory_bytes`` of the process tree.

    Raises:
        ConfigError: a setting is wrong. ShardmillError: see shardmill.beam_jobs.job.
    """
    started = work_clock()
    request = parse_request(arguments)
    _choose_allocator()
    from shardmill.infra.processes.trees import sampled_memory

    with shown_to_people(), sampled_memory() as memory:
        outcome = _prepared(request)
    return {
        **outcome,
        "seconds": round(work_clock() - started, 3),
        "peak_memory_bytes": memory.peak_bytes,
    }


def _prepared(request: JobRequest) -> dict[str, Any]:
    """Run the job, and report its inputs and outputs to OpenLineage."""
    from shardmill.beam_jobs.job import prepare_version
    from shardmill.infra.storage.objects.hub import hub_place, is_on_hub, without_revision

    place = without_revision(request.source)
    read = [LineageDataset(place)]
    with reported_job(f"prepare.{request.dataset}", read) as lineage:
        outcome = prepare_version(request)
        if is_on_hub(request.source):
            read[0] = LineageDataset(place, hub_place(outcome["source"]).revision)
        if not outcome["unchanged"]:
            written = sum(split["num_examples"] for split in outcome["splits"].values())
            dataset = below(request.root, request.dataset)
            lineage.outputs.append(LineageDataset(dataset, str(outcome["version"]), written))
    return outcome


def _foresee(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the result that a run would have, JSON-able; see shardmill.beam_jobs.dry_run.

    Raises:
        ConfigError: a setting is wrong. ShardmillError: see shardmill.beam_jobs.dry_run.
    """
    request = parse_request(arguments)
    _choose_allocator()
    from shardmill.beam_jobs.dry_run import dry_run

    with shown_to_people():
        return dry_run(request)


def _choose_allocator() -> None:
    """Let Arrow and all threads allocate from one place, which gives back what is free.

    Arrow's own allocator reserves as much again as the tables take, and glibc keeps what other threads freed
    at the end of their arenas.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # read when pyarrow is loaded
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = JobParser(
        "python -m shardmill.beam_jobs.prepare",
        "Turn a folder of images into a published, balanced, sharded TFRecord dataset.",
        _EXAMPLES,
    )
    parser.add_argument(
        "source",
        help="folder of images: a subfolder a class, or train/, validation/, test/ of them; of other kinds "
        "also a file, or a pattern in quotes",
    )
    parser.add_argument("--dataset", required=True, metavar="NAME", help="name of the dataset")
    parser.add_job_arguments("prepare")
    parser.add_argument(
        "--failure-budget",
        type=float,
        metavar="FRACTION",
        help="fraction of the inputs that may be quarantined",
    )
    parser.add_argument(
        "--source-kind",
        metavar="auto|KIND",
        help="kind of source, as source.kind; auto has it recognised (default: image_folder)",
    )
    parser.add_argument(
        "--label-edits",
        metavar="FILE.csv",
        help="corrected classes of single images, as source.label_edits: a label-errors.csv with decisions",
    )
    parser.add_argument(
        "--runner", metavar="NAME", help="where the Beam jobs run, as runner.name (default: embedded)"
    )
    parser.add_argument(
        "--flink-master",
        metavar="HOST:PORT",
        help="a Flink cluster to run on: REST address of its JobManager, as runner.flink.master",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print an estimate of the result, and write nothing"
    )
    return parser


def parse_request(arguments: argparse.Namespace) -> JobRequest:
    """Return the request that a command line makes.

    Raises:
        ConfigError: a setting is wrong.
    """
    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.beam_jobs.config.runner import runner_overrides
    from shardmill.beam_jobs.request import JobRequest
    from shardmill.infra.settings import validate

    if arguments.source_kind is not None:
        arguments.overrides.append(f"source.kind={arguments.source_kind}")
    if arguments.label_edits is not None:
        given = arguments.label_edits
        place = given if "://" in given else uri_of(absolute_path(given))
        arguments.overrides.append(f"source.label_edits={place}")
    arguments.overrides += runner_overrides(arguments.runner, arguments.flink_master)
    config = settings_of(arguments, PrepareConfig, "prepare", failure_budget=arguments.failure_budget)
    values = {
        "source": arguments.source if "://" in arguments.source else uri_of(arguments.source),
        "dataset": arguments.dataset,
        "root": arguments.root,
        "config": config,
    }
    return validate(JobRequest, values, where="the command")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.ERROR)  # Beam warns of every optional library that is not there
    if arguments.dry_run:
        from shardmill.beam_jobs.summaries import forecast_lines

        outcome = _foresee(arguments)
        lines = forecast_lines(outcome)
    else:
        from shardmill.beam_jobs.summaries import version_lines

        outcome = run_prepare(arguments)
        lines = version_lines(outcome)
    result(outcome)
    print(dump_json(outcome) if arguments.json else "\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    # Without waiting for Beam's threads, which may be in the middle of their work after a stop.
    exit_at_once(run_main(main))
