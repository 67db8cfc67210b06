"""The summary of a pipeline on its own page: version, training, and the paths of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmill.flows.flow_runs.artifacts import prepared, trained
from shardmill.flows.flow_runs.artifacts.keys import Keys
from shardmill.flows.flow_runs.artifacts.page import RunPage
from shardmill.flows.flow_runs.showing import addresses
from shardmill.flows.flow_runs.showing.headline import headline
from shardmill.flows.flow_runs.showing.markdown import escaped, link

Result = Mapping[str, Any]


def show_pipeline(page: RunPage, keys: Keys, of_prepare: Result, of_train: Result | None) -> None:
    """Show the results that a pipeline has so far.

    Args:
        page: address of the page of the pipeline's run.
        keys: keys of the artifacts of the run.
        of_prepare: the result of the prepare job.
        of_train: the result of the training; None if it goes on, or if there is none.
    """
    lines = [headline(of_prepare), *([] if of_train is None else [headline(of_train)])]
    parts = []
    runs = zip(("prepare", "train"), page.sub_runs(), strict=False)
    parts.append("Runs: " + ", ".join(link(job, addresses.flow_run(run_id)) for job, run_id in runs))
    if of_train is not None:
        parts += trained.summary(of_train)
        parts += [matrix for split, matrix in trained.confusion_pictures(of_train) if split == "test"]
    parts += [*prepared.summary(of_prepare, ()), prepared.balance_picture(of_prepare)]
    page.markdown(keys.key("pipeline"), "\n\n".join(parts), f"**{escaped('; '.join(lines))}**")
