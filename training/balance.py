"""``python -m shardmill.training.balance RUN``: how evenly the ranks of a run work. Loads no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shardmill.infra.processes.job_command import JobParser
from shardmill.infra.processes.process import run_main
from shardmill.infra.storage.locations import default_runs
from shardmill.infra.strict_json import dump_json
from shardmill.training.results.run_files.rank_balance import RankBalance, read_balance
from shardmill.training.results.run_files.run_folder import run_dir


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    parser = JobParser(
        "python -m shardmill.training.balance",
        "Show how evenly the ranks of a training run work, from its last epoch.",
        "example: python -m shardmill.training.balance clothing-v1-0123456789",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name under --runs")
    parser.add_argument("--runs", default=default_runs(), metavar="DIR", help="folder of the training runs")
    parser.add_argument("--json", action="store_true", help="print JSON, with the examples of each class")
    args = parser.parse_args(argv)
    found = read_balance(run_dir(args.run, Path(args.runs)))
    if args.json:
        print(dump_json({**found.to_json(), "class_counts": found.class_counts()}))
    else:
        print(_page(found))
    return 0


def _page(found: RankBalance) -> str:
    columns, rows = found.table()
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (columns, *rows)
    ]
    return "\n".join([f"epoch {found.epoch}", *lines, *(f"warning: {text}" for text in found.warnings)])


if __name__ == "__main__":
    raise SystemExit(main())
