"""Prepare on Beam's job server for Spark, with a local Spark master: the same bytes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.samples.clusters.spark import JARS, running_job_server
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.prepared import prepared, stored_bytes

END_SECONDS = 900.0

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None or not list(JARS.glob("beam-runners-spark-3-*.jar")),
    reason="the jars of Spark's job server are not there: mvn -f infra/deploy/spark/pom.xml "
    "dependency:copy-dependencies -DoutputDirectory=FOLDER, and set SHARDMILL_SPARK_JARS to the folder",
)


def test_a_version_made_on_spark_has_the_same_bytes(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "photos", {"a": 12, "b": 10})
    write(source, {"b/copy.jpg": (source / "a/00001.jpg").read_bytes(), "b/broken.jpg": jpeg(900)[:-60]})
    settings = ("runner.block_images=4", "shards.num_shards=2", "image.size=32", "failure_budget=0.5")
    options = [word for setting in settings for word in ("--set", setting)]
    prepared(source, tmp_path / "embedded", *options)
    with running_job_server(tmp_path) as address:
        given = json.dumps([f"--job_endpoint={address}", "--environment_type=LOOPBACK"])
        on_spark = ["--set", "runner.name=portable", "--set", f"runner.options={given}"]
        command = prepare_command(source, tmp_path / "spark", *options, *on_spark)
        subprocess.run(command, check=True, timeout=END_SECONDS)
    assert stored_bytes(tmp_path / "spark") == stored_bytes(tmp_path / "embedded")
