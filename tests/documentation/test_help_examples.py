"""The examples of the help run, in the order of the help, in a folder that looks like the reader's.

All of them are parsed, with their settings, in tests/unit/flows/cli/test_tree.py. Those of the table need
more than a dataset; the tests that it names run them.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from shardmill.flows import cli
from shardmill.flows.cli import root
from shardmill.flows.cli.help import described
from shardmill.flows.cli.tree import all_commands
from shardmill.infra.dataset.catalog import Catalog
from tests.documentation.workplace import make_workplace

# What an example has, and where the command runs instead.
ELSEWHERE = {
    "shardmill demo": "tests/end_to_end/test_demo.py",
    "shardmill run ": "tests/prefect_server/test_without_server.py",
    "shardmill prepare photos --dataset photos --image-size": "tests/end_to_end/prepare",
    "shardmill prepare photos --dataset photos ": "tests/prefect_server/test_without_server.py",
    "shards/train-*.tar": "tests/end_to_end/prepare/sources",
    "tensorflow_datasets": "tests/end_to_end/test_import.py",
    "s3://": "tests/cluster and tests/end_to_end/stores",
    "hf://": "tests/end_to_end/stores/test_hub.py",
    "shardmill train ": "tests/end_to_end/train",
    "shardmill label-errors ": "tests/end_to_end/train/test_label_errors.py",
    "shardmill profile ": "tests/unit/flows/cli/test_profile.py",
    "--augmented": "tests/unit/flows/cli/test_augmented.py",
    "photos-v1-3f2a": "tests/unit/flows/cli/test_runs.py and tests/end_to_end/train/test_run_commands.py",
    "photos-v2-77cd": "tests/unit/flows/cli/test_promoting.py",
    "photos@production": "tests/unit/flows/cli/test_promoting.py",
    "model aliases photos": "tests/unit/flows/cli/test_promoting.py",
    "team.p": "tests/end_to_end/maintain/test_signing.py",
    "/data/": "a folder of the reader's machine",
    "/mnt/": "a folder of the reader's machine",
    "shardmill up": "tests/prefect_server",
    "shardmill down": "tests/prefect_server",
    "shardmill status": "tests/unit/flows/cli/test_status.py",
    "shardmill notify": "tests/prefect_server/test_notify.py",
    "shardmill schedule": "tests/prefect_server/test_schedules.py",
    "shardmill platform": "tests/prefect_server, tests/end_to_end/maintain/test_backup.py",
    "export ": "the environment of the reader's server",
}


# What removes the whole dataset comes last.
EXAMPLES = sorted(
    dict.fromkeys(line for _, command in all_commands(root()) for line in described(command.help)[1]),
    key=lambda example: "rm photos --purge" in example,
)


def _runs_elsewhere(example: str) -> bool:
    return any(words in f"{example} " for words in ELSEWHERE if words != "export ") or example.startswith(
        "export "
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``photos/`` and ``datasets/photos`` in four versions with the same content."""
    folder = make_workplace(tmp_path_factory.mktemp("help"), per_class=8)
    catalog = Catalog(folder / "datasets")
    manifest = catalog.open("photos").manifest
    for number in (2, 3, 4, 5):
        catalog.publish(manifest.model_copy(update={"version": number, "parent": number - 1}))
    return folder


@pytest.fixture
def reader(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("SHARDMILL_HOME", str(place / "home"))
    for name in ("SHARDMILL_ROOT", "SHARDMILL_RUNS"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.mark.parametrize("example", [example for example in EXAMPLES if not _runs_elsewhere(example)])
def test_the_example_runs(reader: Path, example: str, capfd: pytest.CaptureFixture[str]) -> None:
    version = Catalog(reader / "datasets").latest("photos")
    if version is not None:
        record = version.index(version.shards("train")[0])["id"][0].as_py()
        example = example.replace("0f3c5a7be1d24c68", record)
    words = shlex.split(example.removesuffix(" > croissant.json"))[1:]
    status, said = cli.run(words), capfd.readouterr().err
    assert status == 0, said
    assert " is now: " not in said, "no example has an old name"


def test_most_examples_are_run() -> None:
    assert sum(not _runs_elsewhere(example) for example in EXAMPLES) >= 25
    unused = {words for words in ELSEWHERE if not any(words in f"{example} " for example in EXAMPLES)}
    assert unused == set()
