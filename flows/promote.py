"""The promote flow: a run takes over an alias if it is better than the run that has it, or by hand."""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from pydantic import Field

from shardmill.flows.flow_runs import children
from shardmill.flows.flow_runs.events import emit_decided
from shardmill.flows.flow_runs.jobs import promote_command
from shardmill.flows.flow_runs.run_states import (
    cancelled_state,
    completed_state,
    failures_shown,
    job_task,
    shardmill_run,
)
from shardmill.flows.flow_runs.showing.page import Keys
from shardmill.flows.flow_runs.showing.trained import decision_in_words, publish_verdict
from shardmill.flows.parameters import (
    AliasWord,
    OptionalFolder,
    Reason,
    RunRef,
    Unset,
    root_or_default,
    runs_or_default,
)
from shardmill.infra.errors import Cancelled
from shardmill.training.aliases import PRODUCTION
from shardmill.training.promotion.rules import PromotionRules

RULES = PromotionRules()


@flow(name="promote", flow_run_name="promote-{run}")
@shardmill_run
def promote(
    run: RunRef,
    alias: AliasWord = PRODUCTION,
    reason: Annotated[Reason, Field(title="text")] | Unset = None,
    rules: PromotionRules = RULES,
    root: OptionalFolder = None,
    runs: OptionalFolder = None,
    code: OptionalFolder = None,
) -> State[Any]:
    """Give an alias to a run, if it is better beyond the noise than the run that has it.

    Both are compared on the validation split of the newest version of their dataset. With a reason a person
    decides, and nothing is compared.

    Args:
        run: Name of a finished training run, or NAME@ALIAS such as photos@staging.
        alias: Name of the alias.
        reason: Decide by hand, and say why; empty to have the figures decide.
        rules: When the run takes over the alias.
        root: Folder of the datasets; empty for the worker's default.
        runs: Folder of the training runs; empty for the worker's default.
        code: Folder of your own modules; empty for the folder in which the worker was started.
    """
    folder, runs_folder = root_or_default(root), runs_or_default(runs)
    again = ["promote", run, "--alias", alias, "--root", folder, "--runs", runs_folder]
    again += ["--reason", reason] if reason else []
    try:
        with failures_shown("promote", Keys(run), again, {"": rules}):
            result = promote_run(run, alias, reason or None, rules, folder, runs_folder)
    except Cancelled as stop:
        return cancelled_state(stop)
    emit_decided(result)
    publish_verdict(result)
    message = f"{result['alias']} {decision_in_words(result)}"
    return completed_state(message, result, is_unchanged=bool(result["unchanged"]))


@job_task("promote-run")
def promote_run(
    run: str, alias: str, reason: str | None, rules: PromotionRules, root: str, runs: str
) -> dict[str, Any]:
    """Compare and decide in a process of its own and return its result."""
    command = promote_command(run, alias, reason, rules, root, runs)
    log = get_run_logger()
    return children.run_child_job(
        command, job="promote", keys=Keys(run), log=log, in_words=decision_in_words
    ).result
