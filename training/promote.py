"""``python -m shardmill.training.promote RUN``: give an alias to a run that is better than its holder.

Both runs are compared on the validation split of the newest version of their dataset, or on the test split
with ``--set split=test``, by a paired bootstrap. A model without predictions of it is evaluated first, in a
process of its own. With ``--reason`` a person decides, and nothing is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from shardmill.infra.processes.job_command import JobParser, deliver, settings_of
from shardmill.infra.processes.process import exit_at_once, run_main
from shardmill.infra.storage.locations import default_runs
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.aliases import PRODUCTION
from shardmill.training.aliases.history import Decision
from shardmill.training.promotion.deciding import promote_by_figures, promote_by_hand
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.run.files.stored import opened_run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(partial(_run, argv))


def _run(argv: Sequence[str] | None) -> int:
    parser = JobParser(
        "python -m shardmill.training.promote",
        "Give an alias to a run, if it is better than the run that has it.",
        "example: python -m shardmill.training.promote clothing-v2-0123456789 --set minimum_gain=0.005",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name under --runs")
    parser.add_argument("--alias", default=PRODUCTION, help=f"default: {PRODUCTION}")
    parser.add_argument("--reason", metavar="TEXT", help="decide by hand, and say why")
    parser.add_argument("--runs", default=default_runs(), metavar="DIR", help="folder of the training runs")
    parser.add_job_arguments("promote")
    args = parser.parse_args(argv)
    rules = settings_of(args, PromotionRules, "promote")
    with opened_run(args.run, args.runs) as run, shown_to_people():
        if args.reason is not None:
            decision = promote_by_hand(run, args.alias, args.runs, args.reason)
        else:
            decision = promote_by_figures(run, args.alias, args.runs, str(args.root), rules)
    deliver(args, result_of(decision), summary)
    return 0


def result_of(decision: Decision) -> dict[str, Any]:
    """Return the result of a decision, JSON-able."""
    record = decision.record
    return {
        "alias": f"{record.dataset}@{record.alias}",
        "run": record.run,
        "moved": decision.is_new and record.is_move,
        "unchanged": not decision.is_new,
        "holder": decision.holder,
        "record": record.model_dump(mode="json"),
    }


def summary(result: dict[str, Any]) -> str:
    """Summarize the result in a few lines."""
    record, alias = result["record"], result["alias"]
    before = f" (before: {record['predecessor']})" if record["predecessor"] else ""
    if result["moved"]:
        lines = [f"{alias} is now {record['run']}{before}"]
    elif record["action"] != "kept":
        lines = [f"{record['run']} has {alias} already, since {record['at']}"]
    else:
        lines = [f"{alias} stays {result['holder'] or 'without a run'}; {record['run']} does not get it"]
    lines.append(f"  {record['verdict']}")
    if record["reason"]:
        lines.append(f"  reason: {record['reason']}")
    return "\n".join(lines)


if __name__ == "__main__":
    exit_at_once(main())
