"""Plugins of other distributions: the right ones work, and one that is broken costs itself only."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest

from shardmill.flows import cli
from tests.samples.plugins import PACKAGE, add_distribution, python

FILES = {
    "broken/__init__.py": "",
    "broken/imports.py": "\nimport a_library_that_nobody_has\n",
    "broken/exits.py": "import sys\n\nprint('going')\nsys.exit(3)\n",
    "broken/raises.py": "raise KeyError('of mine')\n",
    "broken/syntax.py": "def f(:\n",
    "broken/extra.py": "import torch\n",
    "broken/values.py": """
from shardmill.infra.dataset.exports.formats import Format
from shardmill.training.augment.kind import ImageAugmentation

NUMBER, UNFINISHED = 3, Format()
def build(spec):
    return None
class Lacks(ImageAugmentation):
    turn = 1
class LacksFields(ImageAugmentation):
    turn, name, is_on, draw, apply = 1, "", False, None, None
""",
}
# Group, name, value, state, and the reason.
BROKEN = [
    ("sources", "imports", "broken.imports", "broken", r"imports.py, line 2, failed: ModuleNotFound"),
    ("sources", "exits", "broken.exits", "broken", r"exits.py, line 4, failed: SystemExit: 3"),
    ("sources", "no_function", "broken.values", "broken", r"AttributeError: .*'list_inputs'"),
    ("sources", "absent", "broken.nowhere", "broken", r"there is no module 'broken.nowhere'"),
    ("sources", "image_folder", "broken.values", "refused", r"shardmill [\d.\w]+ has this name too"),
    ("sources", "auto", "broken.values", "refused", r"shardmill [\d.\w]+ has this name too"),
    ("sources", "function", "broken.values:build", "refused", r"must name a module alone"),
    ("models", "number", "broken.values:NUMBER", "broken", r"3 builds no model"),
    ("models", "nothing", "broken.values:nothing", "broken", r"AttributeError: .*'nothing'"),
    ("models", "raises", "broken.raises", "broken", r"raises.py, line 1, failed: KeyError: 'of mine'"),
    ("models", "extra", "broken.extra", "missing", r"needs torch, .* \(pip install 'shardmill\[torch\]'\)"),
    ("models", "syntax", "broken.syntax:build", "broken", r"syntax.py, line 1, failed: SyntaxError"),
    ("models", "resnet-50", "broken.values:build", "refused", r"shardmill [\d.\w]+ has this name too"),
    ("models", "Small-CNN", "broken.values:build", "refused", r"shardmill [\d.\w]+ has this name too"),
    ("models", "twice", "broken.values:build", "refused", r"second 2.0 has this name too"),
    ("models", "my.model", "broken.values:build", "refused", r"the name must begin with a letter"),
    ("models", "words", "two words", "refused", r"names neither a module nor module:object"),
    ("augmentations", "mixup", "broken.values:Lacks", "refused", r"shardmill [\d.\w]+ has this name too"),
    ("augmentations", "of_images", "broken.values:Lacks", "refused", r"shardmill [\d.\w]+ has this name too"),
    ("augmentations", "module", "broken.values", "refused", r"must name an object, as in module:object"),
    ("augmentations", "plain", "broken.values:build", "broken", r"it is no class derived from Window"),
    ("augmentations", "lacks", "broken.values:Lacks", "broken", r"Lacks lacks apply, draw, is_on, name"),
    ("augmentations", "fields", "broken.values:LacksFields", "broken", r"LacksFields.Fields is no class"),
    ("exports", "folder", "broken.values:UNFINISHED", "refused", r"shardmill [\d.\w]+ has this name too"),
    ("exports", "a_number", "broken.values:NUMBER", "broken", r"an object of type int is no shard.*Format"),
    ("exports", "unfinished", "broken.values:UNFINISHED", "broken", r"Format lacks write"),
    ("exports", "exits", "broken.exits", "broken", r"SystemExit: 3"),
]  # fmt: skip
LISTED_AND_ASKED = """
import contextlib, io, json, sys
from shardmill.flows import cli
from shardmill.flows.cli.runs.plugins import GROUPS

for words in (["plugins"], ["plugins", "--json"]):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert cli.run(words) == 0
    if words == ["plugins"]:
        table = shown.getvalue()
asked = {}
for group in GROUPS:
    for plugin in group.installed():
        try:
            group.find(plugin.name).load_function()
        except Exception as error:
            asked[f"{group.group} {plugin.name}"] = [type(error).__name__, str(error)]
print(json.dumps({"table": table, "listed": json.loads(shown.getvalue())["plugins"], "asked": asked}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process sees that has the example and the broken ones."""
    folder = tmp_path_factory.mktemp("plugins")
    points: dict[str, dict[str, str]] = {}
    for group, name, value, *_ in BROKEN:
        points.setdefault(f"shardmill.{group}", {})[name] = value
    add_distribution(folder / "broken", "broken-plugins 0.3", points, FILES)
    others = {group: {"twice": "broken.values:build"} for group in ("shardmill.models", "shardmill.model")}
    add_distribution(folder / "broken", "second 2.0", others)
    about = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    add_distribution(folder / "example", f"{about['name']} {about['version']}", about["entry-points"])
    shown = python(LISTED_AND_ASKED, targets=(PACKAGE, folder / "example", folder / "broken"))
    return dict(json.loads(shown.splitlines()[-1]))


def test_the_example_is_ready(found: dict[str, Any]) -> None:
    ready = [row for row in found["listed"] if row["state"] == "ready"]
    assert [(row["group"], row["name"]) for row in ready] == [
        ("shardmill.sources", "inverted_files"),
        ("shardmill.models", "tiny"),
        ("shardmill.models", "tiny_torch"),
        ("shardmill.augmentations", "negative"),
        ("shardmill.exports", "id_list"),
    ]
    assert {(row["distribution"], row["version"]) for row in ready} == {("shardmill-example", "1.0")}
    assert len(found["listed"]) == len(ready) + len(BROKEN) + 2
    *_, astray = found["listed"]
    assert (astray["distribution"], astray["version"], astray["state"]) == ("second", "2.0", "refused")
    assert astray["reason"] == "there is no group shardmill.model; did you mean 'shardmill.models'?"


@pytest.mark.parametrize(("group", "name", "value", "state", "reason"), BROKEN)
def test_a_broken_one_is_named_with_its_reason(
    found: dict[str, Any], group: str, name: str, value: str, state: str, reason: str
) -> None:
    (row,) = (
        row
        for row in found["listed"]
        if (row["group"], row["name"], row["distribution"]) == (f"shardmill.{group}", name, "broken-plugins")
    )
    assert (row["state"], row["version"], row["value"]) == (state, "0.3", value)
    assert re.search(reason, row["reason"])
    kind, message = found["asked"][f"shardmill.{group} {name}"]
    assert kind == ("EnvironmentFault" if state == "missing" else "ConfigError")
    assert re.search(reason, message)
    assert f"of the distribution broken-plugins 0.3 (entry point {name} = {value} of " in message
    if kind == "ConfigError":
        assert "mend or uninstall broken-plugins" in message
    assert f"shardmill.{group}: {name} is {state}: " in found["table"]


def test_without_any_it_is_said_how_one_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["plugins"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("No plugins are installed.")
    assert tomllib.loads("\n".join(lines[1:3])) == {
        "project": {"entry-points": {"shardmill.models": {"my_model": "my_package.my_model"}}}
    }
    cli.run(["plugins", "--json"])
    assert json.loads(capsys.readouterr().out) == {"plugins": []}
