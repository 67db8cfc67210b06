"""The demo refuses, before it starts anything, folders that it cannot read or must not write to."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.flows.cli import run


def refusal(capsys: pytest.CaptureFixture[str], status: int, *options: str) -> tuple[str, str]:
    """The error and the remedy of a demo."""
    assert run(["demo", *options]) == status
    error, remedy = capsys.readouterr().err.splitlines()
    return error.removeprefix("error: "), remedy.removeprefix("remedy: ")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "note.txt").write_text("not a folder")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "said"), [("gone", "does not exist"), ("note.txt", "is a file, not a folder")]
)
def test_a_source_that_is_no_folder(source: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, 2, "--source", source)[0] == f"source {source} {said}"
    assert not Path("demo").exists()


@pytest.mark.parametrize("out", ["photos/demo", "photos"])
def test_an_output_among_the_images(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    error, _ = refusal(capsys, 2, "--source", "photos", "--out", out)
    assert error.startswith(f"--out {out} lies in --source photos")
    assert [path.name for path in Path("photos").iterdir()] == ["cat"]


def test_an_output_with_other_files(capsys: pytest.CaptureFixture[str]) -> None:
    error, remedy = refusal(capsys, 2, "--out", "photos")
    assert error == "--out photos has other files already, such as cat"
    assert remedy.endswith("--out FOLDER")
    assert [path.name for path in Path("photos").iterdir()] == ["cat"]


@pytest.mark.parametrize("out", ["note.txt", "note.txt/demo", "/proc/demo"])
def test_an_output_that_cannot_be_written(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    error, remedy = refusal(capsys, 4, "--out", out)
    assert error.startswith(f"--out {out}: {out}")
    assert " cannot be written: " in error
    assert remedy.endswith("--out FOLDER")
