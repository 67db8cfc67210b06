"""Decide which run has an alias, and record it: by figures, by hand, or back to the run before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import parse_joined
from shardmill.infra.errors import CorruptDataError, DataError, NotFoundError, UsageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import public_location
from shardmill.training.aliases import AliasName
from shardmill.training.aliases.history import AliasHistory, AliasRecords, Decision, list_aliases, rolled_back
from shardmill.training.aliases.record import Action, AliasRecord, now, this_user
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.promotion.verdict import Measured, Verdict, judge, judge_first, measure
from shardmill.training.results.run_files.run_folder import RunFolder
from shardmill.training.results.tracking.aliases import tell_trackers
from shardmill.training.run.files.stored import opened_run

_BY_HAND = "decide by hand: shardmill model promote RUN --reason TEXT"


def promote_by_figures(
    run: RunFolder, alias: str, runs: str | Path, root: str, rules: PromotionRules
) -> Decision:
    """Give an alias to a run if it is better than the run that has it, beyond the noise.

    Both are compared on the validation split of the newest version of the dataset, or on that of
    ``rules.split``. The test split is reported. Runs that cannot be compared
    leave the alias where it is; the record says why.

    Args:
        run: the candidate.
        alias: name of the alias.
        runs: the folder of the runs, local or in an object store.
        root: the folder of the datasets.
        rules: the rules of the comparison.

    Raises:
        DataError: the run is unfinished, or a damaged record may have given the alias to another run.
        EnvironmentFault: a run could not be evaluated.
    """
    run.finished()
    name = AliasName(run.dataset_name, alias)
    verdicts: dict[str | None, Verdict] = {}  # champion -> verdict: a race with others does not compare again

    def decide(earlier: AliasRecords) -> AliasRecord:
        holder = earlier.current()
        if holder is not None and holder.run == run.name:
            return holder
        champion = None if holder is None else holder.run
        if champion not in verdicts:
            verdicts[champion] = _verdict(run, champion, earlier.sound, runs, root, rules)
        found = verdicts[champion]
        record = _record(name, run, "promoted" if found.is_promoted else "kept", found.words)
        record = record.model_copy(update={"predecessor": champion, "comparison": found.comparison})
        return _said_before(record, earlier.sound) or record

    return _told(AliasHistory(Storage.at(runs), name).add(decide), runs)


def promote_by_hand(run: RunFolder, alias: str, runs: str | Path, reason: str) -> Decision:
    """Give an alias to a run, whatever its figures are.

    Raises:
        DataError: the run is unfinished. UsageError: the reason is empty.
    """
    run.finished()
    if not reason.strip():
        raise UsageError("the reason is empty", "say why, or leave it out: then figures decide")
    name = AliasName(run.dataset_name, alias)

    def decide(earlier: AliasRecords) -> AliasRecord:
        try:
            holder = earlier.current()
        except CorruptDataError:  # a person decides where the records cannot
            holder = None
        if holder is not None and holder.run == run.name:
            return holder
        record = _record(name, run, "promoted", "by hand")
        before = None if holder is None else holder.run
        return record.model_copy(update={"predecessor": before, "reason": reason.strip()})

    return _told(AliasHistory(Storage.at(runs), name).add(decide), runs)


def roll_back(name: AliasName, runs: str | Path, reason: str | None = None) -> Decision:
    """Give an alias back to the run that had it before.

    Raises:
        NotFoundError: no run had it before, or the folder of that run is gone.
        CorruptDataError: a damaged record may have given it to another run.
    """

    def decide(earlier: AliasRecords) -> AliasRecord:
        holder, before = earlier.current(), earlier.before()
        if holder is None or before is None:
            raise NotFoundError(
                f"no run had the alias {name} before" + (f" {holder.run}" if holder else ""),
                f"see its history: shardmill model aliases {name.dataset}",
            )
        try:
            with opened_run(before.run, runs) as run:
                words = f"back to the run that had it before {holder.run}"
                record = _record(name, run, "rolled back", words)
        except NotFoundError as error:
            raise NotFoundError(
                f"{name} was the run {before.run} before, which is not under {public_location(str(runs))}",
                "bring its folder back, or choose another run: shardmill model promote RUN --reason TEXT",
            ) from error
        return record.model_copy(
            update={"predecessor": holder.run, "reason": reason, "restores": before.number}
        )

    return _told(AliasHistory(Storage.at(runs), name).add(decide), runs)


def is_decided(run: str, alias: str, runs: str | Path) -> bool:
    """Return whether a decision about an alias and a run is recorded.

    Args:
        run: name of the run.
        alias: name of the alias.
        runs: the folder of the runs.

    Raises:
        NotFoundError: there is no such run.
    """
    with opened_run(run, runs) as found:
        name = AliasName(found.dataset_name, alias)
    return any(record.run == run for record in AliasHistory(Storage.at(runs), name).read().sound)


def _verdict(
    run: RunFolder,
    champion: str | None,
    earlier: list[AliasRecord],
    runs: str | Path,
    root: str,
    rules: PromotionRules,
) -> Verdict:
    """Judge a candidate against the run that has the alias."""
    try:
        metric = rules.metric_of(run.task)
        if champion is None:
            figures = run.finished()["metrics"].get(rules.split, {})
            return judge_first(figures, metric, rules, run.dataset)
        if (rollback := rolled_back(earlier, run.name)) is not None:
            return Verdict(False, f"it was rolled back on {rollback.at} by {rollback.by}; {_BY_HAND}")
        version = _newest(run, root)
        with opened_run(champion, runs) as before:  # it may get new predictions
            measured = measure(before, run, version, rules.split, root, rules)
            tested = None if rules.split == "test" else _tested(before, run, version, root, rules)
        return judge(
            measured,
            metric,
            rules,
            times_used=_times_used(run, rules.split, runs),
            tested=tested,
        )
    except (UsageError, DataError) as error:
        events.log(f"{run.name} cannot be compared: {error}", level="warning")
        return Verdict(False, f"cannot be compared: {error.message}; {_BY_HAND}")


def _newest(run: RunFolder, root: str) -> DatasetVersion:
    """Open the newest version of the dataset of a run; of several, of those whose splits it was tested on.

    Where others give it classes, also of these: the splits have the same records.
    """
    catalog, wanted = Catalog(root), parse_joined(run.dataset)
    tested = replace(wanted.tested, classes={})  # the map may name classes of the others
    names_one = len(tested.parts) == 1
    version = catalog.open(run.dataset_name) if names_one else catalog.open_view(str(tested.newest))
    if wanted.is_one or version.manifest.label_names == run.finished().get("classes"):
        return version
    return catalog.open_view(str(wanted.newest))


def _tested(
    champion: RunFolder, candidate: RunFolder, version: DatasetVersion, root: str, rules: PromotionRules
) -> Measured | None:
    """Compare both on the test split; None if they cannot be compared on it."""
    try:
        return measure(champion, candidate, version, "test", root, rules)
    except DataError as error:
        events.log(f"no figures of the test split: {error}")
        return None


def _times_used(candidate: RunFolder, split: str, runs: str | Path) -> int:
    """Count the other candidates that a split of the dataset has judged, for any alias."""
    aliases = list_aliases(Storage.at(runs), candidate.dataset_name)
    records = (record for alias in aliases for record in alias.read().sound)
    judged = {record.run for record in records if (record.comparison or {}).get("split") == split}
    return len(judged - {candidate.name})


def _said_before(record: AliasRecord, earlier: list[AliasRecord]) -> AliasRecord | None:
    """Return an earlier record of the same decision since the alias was last moved; None if there is none."""
    for other in reversed(earlier):
        if other.is_move:
            return None
        if (other.run, other.action, other.verdict) == (record.run, record.action, record.verdict):
            return other
    return None


def _record(name: AliasName, run: RunFolder, action: Action, verdict: str) -> AliasRecord:
    return AliasRecord(
        dataset=name.dataset,
        alias=name.alias,
        action=action,
        run=run.name,
        at=now(),
        by=this_user(),
        trained_on=run.dataset,
        manifest_sha256=run.manifest_sha256,
        verdict=verdict,
    )


def _told(decision: Decision, runs: str | Path) -> Decision:
    """Report a new decision to the tracking systems of the run; their errors do not undo it."""
    if decision.is_new and decision.record.is_move:
        with opened_run(decision.record.run, runs) as run:
            tell_trackers(run.path, decision.record)
    return decision
