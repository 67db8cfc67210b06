"""``shardmill show NAME --augmented FILE``: a picture, made by a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from shardmill.flows import cli
from tests.samples.datasets.published import coloured, publish


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    publish(folder, coloured({"train": {"red": 9, "green": 8}}), name="set")
    return folder


def test_a_picture_is_written(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.png"
    command = [
        "show",
        "set",
        "--root",
        str(root),
        "--augmented",
        "--out",
        str(out),
        "--set",
        "data.image_size=32",
    ]
    assert cli.run([*command, "--set", "augment.color_jitter.hue=0.2"]) == 0
    shown = capfd.readouterr()
    assert shown.out == f"Wrote {out}: 6 training examples of set@1, as stored and in 6 epochs\n"
    assert shown.err == ""
    with Image.open(out) as picture:
        assert picture.size[0] > 1_000
    assert cli.run([*command, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["augmented"] == str(out)


@pytest.mark.parametrize(
    ("arguments", "status", "error", "remedy"),
    [
        (
            ["--augmented", "--out", "out.txt"],
            2,
            "out.txt has no suffix of a picture format",
            "use one of .png",
        ),
        (
            ["--augmented", "--out", "no/out.png", "--set", "data.image_size=32"],
            4,
            "cannot write no/out.png",
            "folder",
        ),
        (
            ["--augmented", "--out", "out.png", "--set", "augment.mixp=1"],
            2,
            "'augment.mixp'",
            "'augment.mixup'",
        ),
        (
            ["--set", "augment.mixup=1"],
            2,
            "--config, --set and --out go with --augmented",
            "--augmented --out",
        ),
        (["--augmented"], 2, "--augmented writes a picture", "--out FILE.png"),
    ],
)
def test_what_is_wrong_is_said_once(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    error: str,
    remedy: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["show", "set", "--root", str(root), *arguments]) == status
    shown = capfd.readouterr().err
    assert shown.count(error) == 1
    assert remedy in shown
    assert not list(tmp_path.iterdir())
