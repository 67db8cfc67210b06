"""The command line: what it refuses and says, its exit statuses; and the commands that look."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import shardmill
from shardmill.flows import cli
from shardmill.flows.cli import output
from shardmill.flows.cli.server.planned import parse_interval
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import UsageError
from tests.samples.preparing.prepared import prepared_here
from tests.samples.sources.image_folders import write_image_folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one real dataset: ``shapes``, 24 inputs, of which one is broken."""
    folder = tmp_path_factory.mktemp("cli")
    source = write_image_folder(folder / "photos", per_class=12)
    (source / "circle" / "000.jpg").write_bytes(b"\xff\xd8\xff but no image")
    prepared_here(source, folder / "datasets", "--set", "failure_budget=0.5", dataset="shapes")
    return folder / "datasets"


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, object]:
    """The JSON object of a command: the last line of its standard output."""
    assert cli.run([*arguments, "--json"]) == status
    parsed: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return parsed


def test_help_has_examples_and_imports_nothing_heavy() -> None:
    heavy = ("prefect", "apache_beam", "tensorflow", "pyarrow", "numpy", "pydantic", "cv2", "httpx")
    program = (
        "import sys\nfrom shardmill.flows.cli import run\nassert run(['--help']) == 0\n"
        f"print(sorted(set(sys.modules) & set({heavy!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "shardmill run photos --dataset photos" in done.stdout
    for command in (
        "prepare",
        "train",
        "run",
        "datasets",
        "show",
        "runs",
        "up",
        "schedule",
        "model",
        "platform",
    ):
        assert f"  {command} " in done.stdout


def test_a_command_starts_its_job_before_it_imports_numpy_or_prefect() -> None:
    program = (
        "import sys, shardmill.flows.cli.runs.flow_runs, shardmill.flows.cli.runs.commands\n"
        "print(sorted(set(sys.modules) & {'prefect', 'numpy', 'pyarrow'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        (["prepar", "x"], "No such command 'prepar'", "did you mean shardmill prepare?"),
        (["prepare", "x", "--datset", "y"], "--datset", "see shardmill prepare --help"),
        (["prepare", "x"], "Missing option '--dataset'", "see shardmill prepare --help"),
        (
            ["prepare", "nowhere", "--dataset", "x"],
            "source nowhere does not exist",
            "give a folder of images",
        ),
        (["prepare", ".", "--dataset", "a/b"], "dataset name 'a/b' cannot be used", "use letters"),
        (
            ["prepare", ".", "--dataset", "x", "--set", "shards.contaner=none"],
            "shards.contaner",
            "shards.container",
        ),
        (["prepare", ".", "--dataset", "x", "--set", "image.quality=101"], "image.quality = 101", None),
        (["prepare", ".", "--dataset", "x", "--failure-budget", "2"], "failure_budget", None),
        (["prepare", ".", "--dataset", "x", "--config", "no.toml"], "no.toml", None),
        (["run", ".", "--dataset", "x", "--set", "image.quality=101"], "image.quality = 101", None),
        (["run", ".", "--dataset", "x", "--set", "train.run.epochs=0"], "run.epochs = 0", None),
        (["train", "shapes", "--set", "run.epoch=3"], "run.epoch", "run.epochs"),
        (
            ["prepare", "nowhere", "--dataset", "x", "--as-is"],
            "source nowhere does not exist",
            "give a folder",
        ),
        (["prepare", "", "--dataset", "x"], "SOURCE is empty", "give a folder of images"),
        (["run", " ", "--dataset", "x"], "SOURCE is empty", "give a folder of images"),
        (["prepare", "s\udcff", "--dataset", "x"], "s\\xff: the path is not UTF-8", "ln -s"),
        (["train", "x", "--root", "r\udcff"], "r\\xff: the path is not UTF-8", "ln -s"),
        (["up", "--port", "65536"], "Invalid value for '--port'", "see shardmill up --help"),
        (["up", "--host", "no-host.invalid"], "--host no-host.invalid: no such address", "127.0.0.1"),
        (["schedule", "add", "--dataset", "x"], "which folder?", "shardmill schedule add SOURCE"),
        (["schedule", "add", ".", "--dataset", "x"], "--cron or --every", "--every 1h"),
        (
            ["schedule", "add", ".", "--dataset", "x", "--every", "1h", "--timezone", "UTC"],
            "--timezone goes with --cron",
            "leave it out",
        ),
        (["schedule", "add", "."], "Missing option '--dataset'", "see shardmill schedule add --help"),
        (["schedule", "pause"], "Missing option '--dataset'", "see shardmill schedule pause --help"),
        (
            ["schedule", "add", ".", "--dataset", "x", "--inbox", "--every", "1h"],
            "needs no --cron",
            "leave out --inbox",
        ),
        (
            ["schedule", "add", ".", "--dataset", "x", "--every", "1h", "--batch", "9"],
            "go with --inbox",
            "add --inbox",
        ),
        (
            ["schedule", "add", ".", "--dataset", "x", "--every", "1h", "--maintain"],
            "not on a source",
            "--maintain",
        ),
        (
            ["schedule", "add", ".", "--dataset", "x", "--every", "1h", "--name", "a b"],
            "not a name",
            "nightly",
        ),
        (["schedule", "add", "--dataset", "x", "--train", "--cron", "0 3 * * *"], "--every alone", "--cron"),
        (["schedule", "add", "--dataset", "x", "--train", "--name", "n"], "one rule of training", "SOURCE"),
        (["up", "--host", "0.0.0.0", "--port", "0"], "can run commands", "--auth user:password"),
        (["up", "--auth", "password", "--port", "0"], "not a user and a password", "--auth shardmill:"),
    ],
)
def test_usage_errors_name_the_cause_and_the_remedy(
    arguments: list[str], error: str, remedy: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    first, *rest = said.err.splitlines()
    assert first.startswith("error: ")
    assert error in first
    assert (remedy is None) or (rest[0].startswith("remedy: ") and remedy in rest[0])
    assert "Traceback" not in said.err


def test_brackets_in_help_texts_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for words in ("[prepare]", "[train]", "[default: 0.01]", "[default: $SHARDMILL_ROOT or ./datasets]"):
        assert words in said


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_taken_port_is_refused_at_once(detach: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert cli.run(["up", "--port", str(port), *detach]) == 4
    assert capsys.readouterr().err.splitlines() == [
        f"error: port {port} of 127.0.0.1 is taken",
        "remedy: use another port: --port 0 finds a free one",
    ]


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 2
    assert "Usage: shardmill" in "".join(capsys.readouterr())


def test_ctrl_c_is_status_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_root: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Catalog, "datasets", interrupted)
    assert cli.run(["datasets"]) == 130
    assert "error: stopped on request" in capsys.readouterr().err


def test_datasets_lists_what_is_published(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = run_json(capsys, "datasets", "--root", str(root))
    (entry,) = listed["datasets"]  # type: ignore[misc]
    assert (entry["dataset"], entry["version"], entry["num_records"], entry["num_classes"]) == (
        "shapes",
        1,
        23,
        2,
    )
    assert cli.run(["datasets", "--root", str(root)]) == 0
    assert "shapes" in capsys.readouterr().out


def test_datasets_of_an_empty_root_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["datasets", "--root", str(tmp_path)]) == 0
    assert "shardmill prepare SOURCE --dataset NAME" in capsys.readouterr().out


def test_one_broken_dataset_does_not_hide_the_others(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shapes").symlink_to(root / "shapes")
    (tmp_path / "broken" / "manifests").mkdir(parents=True)
    (tmp_path / "broken" / "manifests" / "000001.json").write_text("{")

    listed = run_json(capsys, "datasets", "--root", str(tmp_path))
    assert [entry["dataset"] for entry in listed["datasets"]] == ["shapes"]  # type: ignore[attr-defined]
    assert list(listed["unreadable"]) == ["broken"]  # type: ignore[call-overload]
    assert cli.run(["datasets", "--root", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "shapes" in said.out
    assert said.err.startswith("note: broken cannot be read: ")


def test_show_is_readable(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show", "shapes@1", "--root", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "24 inputs = 23 records + 0 duplicates + 0 filtered + 1 quarantined" in shown
    for word in ("train", "validation", "test", "circle", "square", "Quarantined", "report.html"):
        assert word in shown
    manifest = run_json(capsys, "show", "shapes", "--root", str(root))
    assert manifest["versions"] == [1]
    assert manifest["accounting"]["num_quarantined"] == 1  # type: ignore[index]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["show", "shapes"], ["show", "shapes", "--json"], ["datasets"], ["diff", "--help"]],
)
def test_a_reader_that_goes_away_ends_a_command_quietly(arguments: list[str], root: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "shardmill.flows.cli", *arguments],
            env=os.environ | {"SHARDMILL_ROOT": str(root)},
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("count", "text"), [(0, "0 inputs"), (1, "1 input"), (2000, "2,000 inputs")])
def test_counts_for_people(count: int, text: str) -> None:
    assert output.counted(count, "input") == text


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"shardmill {shardmill.__version__}\n"


def test_a_wrong_name_suggests_the_near_one(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show", "shape", "--root", str(root)]) == 2
    assert "remedy: did you mean 'shapes'?" in capsys.readouterr().err
    assert cli.run(["train", "shapes@7", "--root", str(root)]) == 2
    assert "remedy: it has: 1" in capsys.readouterr().err


def test_verify_is_clean_until_a_byte_changes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_json(capsys, "verify", "shapes", "--root", str(root))["problems"] == []
    shard = next(root.glob("shapes/data/*/train-*.tfrecord*"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    try:
        report = run_json(capsys, "verify", "shapes", "--root", str(root), status=3)
        assert any(shard.name in problem for problem in report["problems"])  # type: ignore[attr-defined]
        assert cli.run(["verify", "shapes", "--root", str(root)]) == 3
        assert shard.name in capsys.readouterr().out
    finally:
        shard.write_bytes(whole)


def test_locate_goes_both_ways(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_source = run_json(capsys, "locate", "shapes", "--source", "square/003.jpg", "--root", str(root))
    (found,) = by_source["matches"]  # type: ignore[misc]
    by_record = run_json(capsys, "locate", "shapes", "--record", found["record_id"], "--root", str(root))
    assert by_record["matches"] == [found]
    # The path as a user has it, relative to where he is.
    monkeypatch.chdir(root.parent)
    by_path = run_json(capsys, "locate", "shapes", "--source", "photos/square/003.jpg", "--root", str(root))
    assert by_path["matches"] == [found]

    broken = run_json(capsys, "locate", "shapes", "--source", "circle/000.jpg", "--root", str(root))
    assert broken["matches"][0]["outcome"] == "quarantined"  # type: ignore[index]
    assert cli.run(["locate", "shapes", "--root", str(root)]) == 2


def test_locate_takes_names_that_are_not_utf8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=6)
    on_disk = source / "circle" / os.fsdecode(b"caf\xe9 \x1b[2J.jpg")
    (source / "circle" / "000.jpg").rename(on_disk)
    prepared_here(source, tmp_path / "datasets", dataset="shapes")
    monkeypatch.chdir(tmp_path)

    shown = "circle/caf\\xe9 \x1b[2J.jpg"
    typed = [shown, os.fsdecode(b"circle/caf\xe9 \x1b[2J.jpg"), str(on_disk)]
    typed.append(os.fsdecode(b"photos/circle/caf\xe9 \x1b[2J.jpg"))
    for name in typed:
        found = run_json(capsys, "locate", "shapes", "--source", name, "--root", "datasets")
        assert found["matches"][0]["uri"] == shown  # type: ignore[index]
    assert cli.run(["locate", "shapes", "--source", shown, "--root", "datasets"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert cli.run(["locate", "shapes", "--source", "no\udcff", "--root", "datasets"]) == 2
    assert cli.run(["locate", "shapes", "--record", "no\udcff", "--root", "datasets"]) == 2


def test_class_names_are_neither_markup_nor_control(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table("[bold red]t[", ["[red]c["], [["[bold red]x["], ["\x1b]0;title\x07"], ["back\\"]])
    shown = capsys.readouterr().out
    for text in ("[bold red]t[", "[red]c[", "[bold red]x[", "\\x1b]0;title\\x07", "back\\"):
        assert text in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        (">&-", 0, ""),
        ("> /dev/full", 4, "error: standard output cannot be written to: No space left on device"),
        ("| true", 0, None),
        ("2> /dev/full | grep -c shapes", 0, None),
    ],
)
def test_whatever_becomes_of_the_output(root: Path, redirection: str, status: int, said: str | None) -> None:
    command = f'"{sys.executable}" -m shardmill.flows.cli show shapes --root "{root}" {redirection}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if said is not None:
        assert done.stderr.startswith(said)


def test_dry_run_does_nothing(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [
        "prepare",
        str(root.parent / "photos"),
        "--dataset",
        "new",
        "--root",
        str(tmp_path),
        "--dry-run",
    ]
    assert cli.run([*command, "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["dataset"] == "new"
    assert not list(tmp_path.rglob("*.tfrecord*"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("30min", 1800), ("90s", 90), ("6h", 21600), ("1d", 86400), ("1.5 h", 5400)]
)
def test_intervals(text: str, seconds: int) -> None:
    assert parse_interval(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "h", "5", "1 week", "1s", "-1h"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_interval(text)
