"""balance: how evenly the ranks of a training run work."""

from __future__ import annotations

from flows.cli import options
from flows.cli.training_runs.looking import Run


def balance(run: Run, runs: options.Runs = None, json_output: options.Json = False) -> None:
    """Show how evenly the ranks of a training run work: examples, classes, times and waiting.

    The figures are those of the last epoch that ended. With --json they have the examples of each class.

    [bold]Examples[/bold]

      shardmill balance photos-v1-3f2a

      shardmill balance photos-v1-3f2a --json
    """
    from flows.cli import output
    from flows.cli.training_runs.folder import runs_folder
    from training.results.run_files.rank_balance import read_balance
    from training.results.run_files.run_folder import open_run

    found = read_balance(open_run(run, runs_folder(runs)).path)
    if json_output:
        output.print_json({**found.to_json(), "class_counts": found.class_counts()})
        return
    columns, rows = found.table()
    output.print_table(f"ranks in epoch {found.epoch}", columns, [list(row) for row in rows])
    for warning in found.warnings:
        output.note(f"warning: {warning}")
