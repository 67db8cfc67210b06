"""Damage every file that a platform reads: each costs itself alone, and is named with a remedy."""

from __future__ import annotations

import contextlib
import html
import io
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import uuid4

import pytest

from shardmill.flows import cli
from shardmill.flows.flow_runs.lost_runs import lost_commands
from shardmill.flows.flow_runs.run_records import RunRecord, ended_records
from shardmill.flows.maintain import trained_versions
from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from shardmill.flows.problems import open_problems
from shardmill.flows.train_when import TrainWhen, due
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.maintenance.removed import add_purged, purged_contents
from shardmill.infra.errors import ShardmillError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases import AliasName
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.deciding import promote_by_figures, promote_by_hand, roll_back
from shardmill.training.promotion.purged import AffectedRun, affected_runs, mark_runs
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.results.run_files.run_folder import open_run
from shardmill.training.run.files.identity import run_identity
from shardmill.training.run.files.lengthening import why_not_continued
from shardmill.training.run.files.once import finished_result
from shardmill.training.run.files.settled import read_settled
from tests.samples.datasets.published import coloured, publish
from tests.samples.pages.served import get
from tests.samples.training.finished_runs import FinishedRuns

BAD, GOOD = "bad", "good"
_SHAPES = ('{"a":1}', "[]", "7", "null", '"text"', '{"dataset":7,"config":[],"history":{},"metrics":[]}')
_NESTED = '{"dataset":"set@1","config":{"model":{"name":7},"run":{"epochs":"x"},"optimizer":{}},"format":"x"}'


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _written(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.unlink() or (path.write_bytes(content) and None)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": _cut,
    "empty": _written(b""),
    "binary": _written(bytes(range(256)) * 3),
    "a folder": _folder,
    **{f"of the shape {shape[:30]}": _written(shape.encode()) for shape in (*_SHAPES, _NESTED)},
}


class Platform:
    """Two datasets with runs and aliases: files of "set" will be damaged, "sound" stays whole."""

    def __init__(self, folder: Path) -> None:
        made = FinishedRuns(folder, num_judged=8)
        self.folder, self.root, self.runs, self.home = folder, made.root, made.runs, folder / "home"
        made.run("old", 1, lambda rows: rows % 2 == 0)
        made.run(BAD, 2, lambda rows: rows % 4 != 0)
        made.run(GOOD, 2, lambda rows: rows % 10 != 0)
        publish(self.root, coloured({"train": {"a": 2}}), name="sound")
        for run in ("old", BAD, GOOD):
            (self.runs / run / "metrics.jsonl").write_text('{"epoch": 1, "step": 3, "train_loss": 0.5}\n')
            (self.runs / run / "curve.jsonl").write_text('{"split": "train", "step": 3, "step_loss": 0.5}\n')
            promote_by_hand(open_run(run, self.runs), "production", self.runs, "a test")
        mark_runs(self.runs, [AffectedRun(BAD, "set@2", 1, 1)], ["0" * 16])
        add_purged(Storage.at(self.root / "set"), [b"x" * 32], [])
        (self.home / "records").mkdir(parents=True)
        record = RunRecord("prepare", "prepare-set", {}).as_json() | {"state": "Completed"}
        (self.home / "records" / f"{uuid4()}.json").write_text(json.dumps(record))

        (self.home / "problems").mkdir()
        problem = {"kind": "source", "subject": "/data/x", "text": "/data/x cannot be listed", "since": 1.0}
        (self.home / "problems" / "0123.json").write_text(json.dumps(problem))

    def copied(self, to: Path) -> Platform:
        """A copy of the platform that a test may damage."""
        shutil.copytree(self.folder, to)
        copy = object.__new__(Platform)
        copy.folder, copy.root, copy.runs, copy.home = to, to / "datasets", to / "runs", to / "home"
        return copy


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return Platform(tmp_path_factory.mktemp("platform") / "whole")


def command(*words: str) -> Callable[[Platform], None]:
    """Run a command; an error of Shardmill is raised with what the command said."""

    def run(platform: Platform) -> None:
        places = {"RUNS": str(platform.runs), "ROOT": str(platform.root)}
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = cli.run([places.get(word, word) for word in words])
        if status:
            _, _, error = said.getvalue().partition("error: ")
            message, _, remedy = error.partition("remedy: ")
            raise ShardmillError(message or f"status {status}: {said.getvalue()}", remedy or None)

    return run


def page(address: str) -> Callable[[Platform], None]:
    def show(platform: Platform) -> None:
        answer = get(create_app(PageOptions(str(platform.root), str(platform.runs))), address)
        assert answer.status_code != 500, answer.text
        if answer.status_code != 200:
            raise ShardmillError(html.unescape(answer.text), "on the page")

    return show


def train_when(platform: Platform) -> None:
    due("set", TrainConfig(), TrainWhen(new_records=1), str(platform.root), str(platform.runs))


def lengthen(platform: Platform) -> None:
    version = Catalog(platform.root).open("sound")
    why_not_continued(run_identity(TrainConfig(), version), platform.runs)


# They read many folders: none of them fails for one damaged file of a run, an alias or the home.
OF_MANY: dict[str, Callable[[Platform], object]] = {
    "runs": command("runs", "--runs", "RUNS"),
    "runs --json": command("runs", "--json", "--runs", "RUNS"),
    "aliases": command("aliases", "--runs", "RUNS"),
    "rm sound": command("rm", "sound", "--root", "ROOT", "--runs", "RUNS"),
    "datasets": command("datasets", "--root", "ROOT"),
    "show sound": command("show", "sound", "--root", "ROOT"),
    "gc sound": command("gc", "sound", "--root", "ROOT"),
    "maintenance": lambda platform: trained_versions("sound", str(platform.runs)),
    "a new training": lengthen,
    "lost commands": lambda platform: lost_commands(),
    "records of runs": lambda platform: ended_records(),
    "problems": lambda platform: open_problems(),
    **{
        address: page(address)
        for address in ("/", "/live", "/runs", "/datasets", "/aliases", "/metrics", "/lineage")
    },
}

# They are about the damaged thing itself: they work without the file, or name it with a remedy.
OF_ONE: dict[str, Callable[[Platform], object]] = {
    "train when": train_when,
    "open": lambda platform: open_run(BAD, platform.runs).config(),
    "manifest of": lambda platform: open_run(BAD, platform.runs).manifest_sha256,
    "settled": lambda platform: read_settled(platform.runs / BAD),
    "finished": lambda platform: finished_result(Storage.at(platform.runs / BAD), TrainConfig()),
    "purge": lambda platform: affected_runs(Catalog(platform.root), platform.runs, "set", ["0" * 16], [1, 2]),
    "purged": lambda platform: purged_contents(Storage.at(platform.root / "set")),
    "compare": command("compare", BAD, GOOD, "--split", "test", "--runs", "RUNS", "--root", "ROOT"),
    "show": command("show", "set@2", "--root", "ROOT"),
    "diff": command("diff", "set@1", "set@2", "--root", "ROOT"),
    "gc": command("gc", "set", "--root", "ROOT"),
    "history": command("aliases", "set@production", "--runs", "RUNS"),
    "promote": lambda platform: promote_by_figures(
        open_run(BAD, platform.runs), "staging", platform.runs, str(platform.root), PromotionRules()
    ),
    "promote to production": lambda platform: promote_by_figures(
        open_run(BAD, platform.runs), "production", platform.runs, str(platform.root), PromotionRules()
    ),
    "roll back": lambda platform: roll_back(AliasName("set"), platform.runs),
    "the page of a run": page(f"/runs/{BAD}"),
    "the page of two runs": page(f"/compare?run={BAD}&run={GOOD}"),
    "the page of a version": page("/datasets/set/2"),
    "the lineage": page("/lineage?dataset=set"),
}

READERS = OF_MANY | OF_ONE

# File -> the readers that open it, the most different ones; a slow test tries all of them.
_RUN = (
    "runs",
    "rm sound",
    "maintenance",
    "a new training",
    "/",
    "/runs",
    "train when",
    "open",
    "settled",
    "finished",
)
_RUN += (
    "finished",
    "purge",
    "compare",
    "promote",
    "the page of a run",
    "the page of two runs",
    "the lineage",
)
_ALIAS = ("aliases", "history", "promote to production", "roll back", "purge", "/aliases", "the lineage")
_DATASET = ("datasets", "show sound", "/", "train when", "show", "diff", "gc", "purge", "purged")
FILES = {
    f"runs/{BAD}/run.json": _RUN,
    f"runs/{BAD}/result.json": _RUN,
    f"runs/{BAD}/environment.json": ("runs", "open", "manifest of", "promote", "the page of a run"),
    f"runs/{BAD}/metrics.jsonl": ("runs", "the page of a run"),
    f"runs/{BAD}/curve.jsonl": ("runs", "/live", "/metrics", "the page of a run"),
    f"runs/{BAD}/purged.json": ("runs", "aliases", "history", "the page of a run"),
    f"runs/{BAD}/predictions-test.parquet": (
        "runs",
        "compare",
        "promote",
        "the page of a run",
    ),
    "runs/aliases/set/production/000001.json": _ALIAS,
    "runs/aliases/set/production/000002.json": _ALIAS,
    "runs/aliases/set/production/000003.json": _ALIAS,
    "datasets/set/manifests/000002.json": _DATASET,
    "datasets/set/purged.json": ("datasets", "purged", "purge"),
    "datasets/set/data/*/test-*.parquet": ("datasets", "diff", "purge", "train when"),
    "home/records/*.json": ("lost commands", "records of runs"),
    "home/problems/*.json": ("problems", "/", "/metrics"),
}


@pytest.mark.parametrize("pattern", FILES)
def test_a_damaged_file_costs_itself(
    whole: Platform, pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _wrong(whole, pattern, FILES[pattern], tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", FILES)
def test_every_reader_bears_every_damage(
    whole: Platform, pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _wrong(whole, pattern, READERS, tmp_path, monkeypatch)


def _wrong(
    whole: Platform, pattern: str, readers: Iterable[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Return what goes wrong where a file is damaged: a failure that is no error, or that names no remedy."""
    wrong = []
    for number, (damage, apply) in enumerate(DAMAGES.items()):
        platform = whole.copied(folder / str(number))
        monkeypatch.setenv("SHARDMILL_HOME", str(platform.home))
        file = sorted(platform.folder.glob(pattern))[0]
        apply(file)
        for name in readers:
            try:
                READERS[name](platform)
            except ShardmillError as error:
                text = str(error)
                is_named = (
                    file.name in text or f"shardmill evaluate {BAD}" in text or str(file.parent) in text
                )
                if name in OF_MANY or not is_named or not error.remedy:
                    wrong.append(f"{damage}: {name}: {text}")
            except Exception as error:  # noqa: BLE001
                wrong.append(f"{damage}: {name}: {error!r}")
        shutil.rmtree(platform.folder)
    return wrong
