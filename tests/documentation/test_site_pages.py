"""The pages that the site makes of the code: each error with a remedy has an anchor, each name a link."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from shardmill import ShardmillError, open_dataset, prepare, show_batch
from shardmill.infra.settings import validate
from shardmill.training.config import TrainConfig

SITE = Path(__file__).parents[2] / "docs" / "site"


def hook(name: str) -> ModuleType:
    """Load a hook of MkDocs, as MkDocs does: from its file."""
    spec = importlib.util.spec_from_file_location(f"hook_{name}", SITE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def errors() -> ModuleType:
    return hook("error_reference")


def test_every_error_with_a_remedy_has_an_anchor_of_its_own(errors: ModuleType) -> None:
    page = errors.render()
    anchors = Counter(re.findall(r"^#+ .* \{#([a-z0-9-]+)\}$", page, re.MULTILINE))
    assert [anchor for anchor, times in anchors.items() if times > 1] == []
    calls = errors.calls()
    assert len(calls) > 600
    passed_on = {call.place.partition(":")[0] for call in calls if call.is_passed_on}
    assert len(passed_on) < 10
    for file in passed_on:  # they add to an error that another place made, which has its anchor
        assert re.search(r"\w\.remedy\b", (SITE.parents[1] / file).read_text(encoding="utf-8")), file
    wanted = {anchor for call in calls for anchor, _, _ in call.entries()}
    assert wanted <= set(anchors)
    assert [call.place for call in calls if not call.is_passed_on and not [*call.entries()]] == []


def test_every_place_that_names_a_remedy_is_found(errors: ModuleType) -> None:
    """Counted in another way: by what follows ``raise`` in the text of the code."""
    found = {call.place.partition(":")[0] for call in errors.calls()}
    root = SITE.parents[1]
    kinds = "|".join(errors._kinds())
    raising = re.compile(rf'raise (?:{kinds})\(\s*f?"(?:[^"\\]|\\.)*",\s*f?"')
    files = [path for path in errors._files() if raising.search(path.read_text(encoding="utf-8"))]
    assert len(files) > 100
    assert [name for path in files if (name := str(path.relative_to(root))) not in found] == []


def _wrong_setting() -> None:
    validate(TrainConfig, {"run": {"epoch": 3}}, where="[train]")


RAISED: dict[str, Callable[[Path], object]] = {
    "no dataset": lambda folder: open_dataset("missing", folder),
    "no source": lambda folder: prepare(folder / "missing", dataset="d", root=folder),
    "unknown setting": lambda folder: _wrong_setting(),
    "floats": lambda folder: show_batch(np.full((1, 4, 4, 3), -2.0)),
    "type of an argument": lambda folder: show_batch(np.zeros((1, 4, 4, 3)), count="3"),  # type: ignore[arg-type]
    "query": lambda folder: open_dataset("d?width >", folder),
}


@pytest.mark.parametrize("case", RAISED)
def test_a_message_that_users_see_is_on_the_page(errors: ModuleType, tmp_path: Path, case: str) -> None:
    with pytest.raises(ShardmillError) as caught:
        RAISED[case](tmp_path)
    error, kind = caught.value, type(caught.value).__name__
    assert error.remedy
    of_kind = [one for one in errors.messages().values() if one.kind == kind]
    said = [one for one in of_kind if _matches(one.text, error.message)]
    assert said, error
    assert [one for one in said if any(_matches(remedy, error.remedy) for remedy in one.remedies)], error


def _matches(template: str, text: str) -> bool:
    parts = re.split("‹[^›]*›|…", template)
    return re.fullmatch(".*".join(map(re.escape, parts)), text, re.DOTALL) is not None


def test_messages_are_shown_as_they_are(errors: ModuleType) -> None:
    message = errors.Message("UsageError", "--set ‹x›: *a* <b> [c](d) {#e} `f` _g_ | h", ["$x & y"])
    entry = errors._entry("usageerror-set", message)
    assert html.unescape(entry).startswith(f"\n#### {message.text} {{#usageerror-set}}\n\n- $x & y\n")
    assert not set("*<>[]{`|_") & set(entry.partition(" {#")[0])


def test_the_index_links_every_name_to_its_line(errors: ModuleType) -> None:
    index = hook("name_index")
    links = dict(re.findall(r"^- \[`([^`]+)`\]\(([^)]+)\)", index.render(), re.MULTILINE))
    assert links["image.size"] == "configuration.md#prepare.image.size"
    assert links["shardmill prepare"] == "commands.md#shardmill-prepare"
    assert links["ConfigError"] == "errors.md#configerror"
    assert links["truncated"] == "recover-from-failures.md#reason.truncated"
    for page, prefix in (("configuration.md", ""), ("recover-from-failures.md", "reason.")):
        lines = (SITE.parent / page).read_text(encoding="utf-8").split("\n")
        made = (
            [*index._with_anchors(lines)] if not prefix else [index._reason_anchored(line) for line in lines]
        )
        anchors = re.findall(r'<a id="([^"]+)">', "\n".join(made))
        assert len(anchors) == len(set(anchors)) > 50
        wanted = re.findall(rf"\]\({re.escape(page)}#([^)]+)\)", index.render())
        assert sorted(anchors) == sorted(wanted)
