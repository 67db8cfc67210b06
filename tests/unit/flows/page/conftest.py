"""A page over a small made-up catalogue with hostile and broken parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from tests.samples.pages.catalogues import HOSTILE, make_run, publish


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``datasets``, ``runs``, and a secret beside them."""
    folder = tmp_path_factory.mktemp("places")
    root, runs = folder / "datasets", folder / "runs"
    for version in (1, 2, 3):
        publish(root, "photos", version)
    (root / "broken" / "manifests").mkdir(parents=True)
    (root / "broken" / "manifests" / "000001.json").write_text("{")
    (root / HOSTILE.replace("/", "_") / "manifests").mkdir(parents=True)
    make_run(runs, "first", 0.75)
    make_run(runs, "second", 0.5)
    make_run(runs, "unfinished", None)
    make_run(runs, HOSTILE.replace("/", "_"), None)
    for name, content in (("list", "[]"), ("cut", "{"), ("empty", "{}")):
        (runs / name).mkdir()
        (runs / name / "run.json").write_text(content)
    (folder / "secret").mkdir()
    (folder / "secret" / "run.json").write_text("{}")
    (folder / "secret" / "report.html").write_text("the secret")
    (folder / "report.html").write_text("the secret")
    return folder


@pytest.fixture
def app(places: Path) -> Starlette:
    return create_app(PageOptions(str(places / "datasets"), str(places / "runs")))
