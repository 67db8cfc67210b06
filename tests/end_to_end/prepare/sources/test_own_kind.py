"""The kind of source that the documentation shows: as a user would write, run and misuse it."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.dry_run import dry_run
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.locate import locate
from shardmill.infra.dataset.verify import verify
from shardmill.infra.errors import ConfigError
from tests.samples.images.photos import jpeg
from tests.samples.preparing.prepared import rows, run

PAGE = Path(__file__).parents[4] / "docs/add-a-source-kind.md"
CONFIG: dict[str, Any] = {
    "source": {"kind": "my_package.base64_lines", "columns": {"label": "class"}},
    "image": {"size": 16},
    "failure_budget": 0.5,
}


@pytest.fixture(autouse=True)
def my_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example of the page, importable by this process and by those that it starts."""
    (code,) = re.findall(r"```python\n(# my_package/base64_lines.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    package = tmp_path / "code/my_package"
    package.mkdir(parents=True)
    (package / "base64_lines.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "my_package"]:
        del sys.modules[name]


def line(image: bytes, label: str | None) -> str:
    return json.dumps({"image": base64.b64encode(image).decode(), "class": label} if label else {"id": 1})


def make_source(source: Path) -> Path:
    (source / "more").mkdir(parents=True)
    images = [line(jpeg(number), "ab"[number % 2]) for number in range(20)]
    (source / "first.jsonl").write_text("\n".join([*images, line(b"", None), "no JSON"]))
    others = [line(jpeg(5), "b"), line(b"no image", "a"), '{"image": "?", "class": "a"}']
    (source / "more/second.jsonl").write_text("\n".join(others) + "\n")
    (source / "more/null.jsonl").write_text('{"image": "", "class": null}')
    (source / "notes.txt").write_text("how the lines were made")
    return source


def test_the_example_of_the_page(tmp_path: Path) -> None:
    source, root = make_source(tmp_path / "source"), tmp_path / "root"
    first = run(source, root, **CONFIG)
    version = Catalog(str(root)).open("d")
    found = rows(version)
    assert Counter(row["reason"] or row["outcome"] for row in found.values()) == {
        "record": 20, "broken_row": 2, "same_bytes": 1, "unknown_format": 1, "unreadable": 1,
        "no_label": 1, "other_file": 1,
    }  # fmt: skip
    assert version.manifest.classes == ["a", "b"]
    assert not verify(version).problems
    assert "more/second.jsonl#line=000000002" in Path(first["report"]).read_text()
    for asked in ("first.jsonl#line=000000003", f"{source}/first.jsonl#line=000000003"):
        (place,) = locate(version, source=asked)
        assert place["location"] == f"{source}/first.jsonl#line=000000003"
        assert place["label"] == "a"
    again = run(source, root, **CONFIG)
    assert again["unchanged"], "what was unreadable still is"
    (source / "third.jsonl").write_text(line(jpeg(77), "b"))
    grown = run(source, root, **CONFIG)
    assert grown["known"]["files"] == 22, "all but the unreadable one of unchanged containers"
    assert grown["num_records"] == 21


def test_a_dry_run_shows_the_rows_as_understood(tmp_path: Path) -> None:
    request = JobRequest.model_validate(
        {
            "source": str(make_source(tmp_path / "source")),
            "dataset": "d",
            "root": str(tmp_path / "root"),
            "config": CONFIG,
        }
    )
    outcome = dry_run(request)
    assert outcome["first_inputs"][0] == {
        "uri": "first.jsonl#line=000000001", "label": "a", "split": None, "group": None,
    }  # fmt: skip
    assert outcome["sample"]["num_stored"] > 0


@pytest.mark.parametrize(
    ("source", "message", "remedy"),
    [
        ({"kind": "my_package.base65_lines"}, "there is no module 'my_package.base65_lines'", "install it"),
        ({"kind": "my_packages.x"}, "there is no module 'my_packages.x'", "install it"),
        ({"kind": "my_package."}, "no name of code", None),
        ({"kind": "json.decoder"}, "has no function list_inputs", "add-a-source-kind"),
        (
            {"kind": "my_package.base64_lines", "options": {"lable": "x"}},
            "the kind my_package.base64_lines has no options",
            "remove lable",
        ),
        (
            {"kind": "image_folder", "options": {"label": "x"}},
            "the kind image_folder has no options",
            "remove",
        ),
    ],
)
def test_mistakes_are_named(source: dict[str, Any], message: str, remedy: str | None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        run(make_source(tmp_path / "source"), tmp_path / "root", source=source)
    assert remedy is None or remedy in str(error.value.remedy)
