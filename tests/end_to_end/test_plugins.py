"""The example package of plugins, installed by pip, is used by every command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.codecs import decode
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.format.examples import parse_example
from shardmill.infra.format.records import iter_records
from tests.samples.images.photos import make_photos
from tests.samples.plugins import add_distribution, environment, install_example, python

NAME = "shardmill-example"
# Errors that suggest the plugin, or name what is wrong in its settings.
MISTAKES = [
    ("prepare source --dataset d --source-kind inverted_file", "did you mean 'inverted_files'?"),
    ("prepare source --dataset d --source-kind inverted_files --set source.options.separater=_",
     "did you mean 'separator'?"),
    ("train d --model tyny", "did you mean 'tiny'?"),
    ("train d --set augment.negativ.share=1", "did you mean the plugin 'augment.negative'?"),
    ("train d --set augment.negative.share=3", "augment.negative.share = 3: "),
    ("train d --set augment.negative.shar=1", "did you mean 'augment.negative.share'?"),
    ("train d --set augment.mixxup=1", "did you mean 'augment.mixup'?"),
    ("train d --model tiny --framework torch --set model.weights=imagenet", "model.weights = 'imagenet'"),
    ("export d out --format id_lst", "did you mean 'id_list'?"),
    ("export d out --format fails", "failing.py, line 5, failed: KeyError: 'late'"),
    ("export d out --format fails", "it belongs to the format 'fails' of the distribution failing 0.1"),
]  # fmt: skip
FAILING = """
from shardmill.infra.dataset.exports.formats import Format
class Fails(Format):
    def write(self, plan, part, batches, files):
        raise KeyError("late")
FORMAT = Fails()
"""
TRY_MISTAKES = """
import contextlib, io, json, shlex, sys
from shardmill.flows import cli

for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        status = cli.run(shlex.split(line))
    print(json.dumps([status, shown.getvalue()]))
"""
IDENTITY = """
import sys
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.publish.digests import run_digest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.training.config import TrainConfig
from shardmill.training.run.files.identity import run_identity, run_name

version = Catalog(sys.argv[1]).open("d@1")
settings = [{}, {"model": {"name": "tiny"}}, {"augment": {"negative": {}}}]
for config in map(TrainConfig.model_validate, settings):
    print(run_name(config, version), run_identity(config, version).get("plugins"))
for kind in ("image_folder", "inverted_files"):
    print(run_digest("source", PrepareConfig.model_validate({"source": {"kind": kind}})))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, and a source that its kind reads."""
    folder = tmp_path_factory.mktemp("plugins")
    install_example(folder / "installed")
    add_distribution(
        folder / "installed",
        "failing 0.1",
        {"shardmill.exports": {"fails": "failing"}},
        {"failing.py": FAILING},
    )
    photos = make_photos(folder / "photos", {"cat": 24, "dog": 24})
    (folder / "source").mkdir()
    (folder / "source/read.me").write_text("no image")
    for path in photos.glob("*/*"):
        inverted = bytes(255 - byte for byte in path.read_bytes())
        (folder / "source" / f"{path.parent.name}-{path.stem}.inv").write_bytes(inverted)
    return folder


def metadata(place: Path) -> tuple[Path, str]:
    """The file of the package that has its version, and what it says."""
    (about,) = (place / "installed").glob("shardmill_example*.dist-info/METADATA")
    return about, about.read_text()


def shardmill(place: Path, line: str, told: list[str] | None = None) -> dict[str, Any]:
    """The result of a command in the folder; ``told`` takes its standard error."""
    command = [sys.executable, "-m", "shardmill.flows.cli", *line.split(), "--json"]
    done = subprocess.run(
        command, cwd=place, env=environment(place / "installed"), capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    if told is not None:
        told.append(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


PREPARE = (
    "prepare source --dataset d --source-kind inverted_files --set image.encoding=png --set image.resize=none"
)


@pytest.fixture(scope="module")
def prepared(place: Path) -> dict[str, Any]:
    """The first version, prepared by a pool of processes."""
    return shardmill(place, f"{PREPARE} --set runner.processes=2 --set runner.block_images=8")


def test_a_source_kind_is_read_and_its_version_recorded(place: Path, prepared: dict[str, Any]) -> None:
    version = Catalog(place / "datasets").open("d@1")
    assert version.manifest.classes == ["cat", "dog"]
    assert version.manifest.codecs[NAME] == "1.0"
    originals = [decode(path.read_bytes()) for path in (place / "photos").glob("*/*")]
    known = {image.pixels.tobytes() for image in originals}
    stored = [
        decode(parse_example(payload).image)
        for shard in version.manifest.shards
        for _, _, payload in iter_records(version.storage, shard.path, version.manifest.container)
    ]
    assert len(stored) == len(originals) == 48
    assert {image.pixels.tobytes() for image in stored} == known


def test_an_export_has_the_records_and_the_version(place: Path, prepared: dict[str, Any]) -> None:
    shardmill(place, "export d@1 ids --format id_list")
    version = Catalog(place / "datasets").open("d@1")
    names = version.manifest.classes
    index = [row for shard in version.manifest.shards for row in version.index(shard).to_pylist()]
    lines = [line for path in (place / "ids").glob("*.txt") for line in path.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{row['id']} {names[row['label']]}" for row in index)
    summary = json.loads((place / "ids/export.json").read_text())
    assert (summary["format"], summary["plugins"]) == ("id_list", {NAME: "1.0"})


def test_mistakes_suggest_plugins(
    place: Path, prepared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    lines = [line for line, _ in MISTAKES]
    shown = python(TRY_MISTAKES, json.dumps(lines), targets=(place / "installed",)).splitlines()
    for (line, told), found in zip(MISTAKES, shown, strict=True):
        status, text = json.loads(found)
        assert status == 2, (line, text)
        assert told in text, line


def test_another_version_of_a_plugin_is_another_run(place: Path, prepared: dict[str, Any]) -> None:
    def identities() -> list[str]:
        return python(IDENTITY, place / "datasets", targets=(place / "installed",)).splitlines()

    was = identities()
    about, text = metadata(place)
    about.write_text(text.replace("Version: 1.0\n", "Version: 1.1\n"))
    now = identities()
    about.write_text(text)
    assert [one == other for one, other in zip(was, now, strict=True)] == [True, False, False, True, False]
    assert [line.partition(" ")[2] for line in was[:3]] == ["None", ONE, ONE]
    assert now[1].endswith("{'shardmill-example': '1.1'}")


ONE = "{'shardmill-example': '1.0'}"
TRAIN = (
    "train d@1 --model tiny --epochs 2 --set data.image_size=16 --set data.global_batch_size=8 "
    "--set augment.negative.share=0.5"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", ["", " --workers 2", " --set reading.mode=streaming", " --set reading.cache=memory"]
)
def test_a_model_and_an_augmentation_train(place: Path, prepared: dict[str, Any], more: str) -> None:
    trained = shardmill(place, TRAIN + more)
    run = Path(trained["run_dir"] if "run_dir" in trained else place / "runs" / trained["run"])
    assert json.loads((run / "run.json").read_text())["plugins"] == {NAME: "1.0"}
    assert json.loads((run / "environment.json").read_text())["packages"][NAME] == "1.0"
    about, text = metadata(place)
    about.write_text(text.replace("Version: 1.0\n", "Version: 1.1\n"))
    told: list[str] = []
    shardmill(place, f"evaluate {run.name}", told)
    about.write_text(text)
    assert f"{run.name} was trained with {NAME} 1.0; its model is built by 1.1" in told[0]


@pytest.mark.slow
def test_examples_are_shown_as_they_are_augmented(place: Path, prepared: dict[str, Any]) -> None:
    shardmill(place, "show d@1 --augmented --out plain.png --set data.image_size=16")
    shardmill(
        place,
        "show d@1 --augmented --out negative.png --set data.image_size=16 --set augment.negative.share=1",
    )
    plain, negative = (decode((place / name).read_bytes()).pixels for name in ("plain.png", "negative.png"))
    plain, negative = (picture[len(picture) // 2 :].astype(int) for picture in (plain, negative))
    changed = (plain != negative).any(-1)  # but for stored images and words
    assert changed.mean() > 0.05
    assert np.abs(negative[changed] - (255 - plain[changed])).max() <= 2  # levels of grey: tiles are scaled
