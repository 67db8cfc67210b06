"""Shell completion, asked for in the way that a shell asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.flows.cli import options as completion


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in (
        "photos/manifests/000001.json",
        "photos/manifests/000012.json",
        "plants/manifests/000001.json",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}")
    monkeypatch.setenv("SHARDMILL_ROOT", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ph", ["photos"]),
        ("p", ["photos", "plants"]),
        ("x", []),
        ("photos@", ["photos@12", "photos@1"]),
        ("photos@12", ["photos@12"]),
        ("../x@", []),
    ],
)
def test_datasets_and_versions_are_offered(root: Path, typed: str, offered: list[str]) -> None:
    assert completion.references(typed) == offered


@pytest.mark.parametrize(
    ("typed", "key"), [("image.si", "image.size="), ("train.run.ep", "train.run.epochs="), ("se", "seed=")]
)
def test_settings_are_offered(typed: str, key: str) -> None:
    assert key in completion.settings(typed)


def test_a_folder_that_cannot_be_read_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_ROOT", "nonsense://x")
    assert completion.datasets("") == []
