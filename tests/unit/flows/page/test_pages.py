"""The pages of a small catalogue with damaged parts and hostile names."""

from __future__ import annotations

import itertools
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.applications import Starlette

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from tests.samples.pages.catalogues import HOSTILE, make_run, publish, write_curves
from tests.samples.pages.served import get

HOSTILE_RUN = HOSTILE.replace("/", "_")
PAGES = [
    "/", "/live", "/datasets", "/datasets/photos", "/datasets/photos/2", "/runs", "/runs?sort=-accuracy",
    "/runs/first", "/runs/first/live", "/runs/unfinished", f"/runs/{quote(HOSTILE_RUN)}", "/runs/list",
    "/compare", "/compare?run=first&run=second&run=none", f"/compare?run={quote(HOSTILE_RUN)}",
    "/lineage", "/lineage?dataset=photos",
]  # fmt: skip


class _Tags(HTMLParser):
    """The tags of a page, each with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = _Tags()
    parser.feed(text)
    return parser.tags


@pytest.mark.parametrize("path", PAGES)
def test_hostile_names_are_neither_markup_nor_invisible(app: Starlette, path: str) -> None:
    answer = get(app, path)
    assert answer.status_code == 200, answer.text
    found = tags(answer.text)
    assert {attributes.get("src") for tag, attributes in found if tag == "script"} <= {
        attributes.get("src") for tag, attributes in tags(get(app, "/").text) if tag == "script"
    }
    assert not [name for _, attributes in found for name in attributes if name.startswith("on")]
    assert "style" not in {name for _, attributes in found for name in attributes}, "the policy forbids it"
    # The character that turns the direction of text: visible, or in a value that a form sends back.
    shown = re.sub(r'value="[^"]*"', "", answer.text)
    assert "\u202e" not in shown


@pytest.mark.parametrize("path", [path for path in PAGES if "live" not in path])
def test_every_page_can_be_walked_by_keyboard_and_heard(app: Starlette, path: str) -> None:
    found = tags(get(app, path).text)
    kinds = [tag for tag, _ in found]
    assert kinds.count("main") == kinds.count("h1") == kinds.count("header") == 1
    assert dict(found)["html"] == {"lang": "en"}
    assert ("a", {"class": "skip", "href": "#main"}) in found
    assert all("scope" in attributes for tag, attributes in found if tag == "th")
    assert kinds.count("table") == kinds.count("caption")
    assert all(attributes.get("alt") for tag, attributes in found if tag == "img")
    named = [attributes for tag, attributes in found if tag in ("input", "progress", "meter")]
    assert all(attributes.get("aria-label") for attributes in named)
    identities = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(identities) == len(set(identities))
    wanted = {attributes["aria-labelledby"] for _, attributes in found if "aria-labelledby" in attributes}
    assert wanted <= set(identities)
    levels = [int(tag[1]) for tag in kinds if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("path", PAGES)
def test_every_link_leads_somewhere(app: Starlette, path: str) -> None:
    for tag, attributes in tags(get(app, path).text):
        target = attributes.get("href") if tag == "a" else attributes.get("src") if tag == "img" else None
        if target and target.startswith("/"):
            status = get(app, target).status_code
            assert status == 200 or (status == 503 and "/broken/" in target), target


def test_what_is_broken_is_a_row_and_not_an_error(app: Starlette) -> None:
    listed = get(app, "/datasets").text
    assert "000001.json is not a manifest" in listed
    assert "cannot be used" in listed, "the folder with the hostile name"
    runs = get(app, "/runs").text
    assert runs.count(">broken<") == 3
    assert get(app, "/runs/cut").status_code == 200
    assert get(app, "/datasets/broken/1").status_code == 503


def test_the_accounting_of_a_version_is_shown(app: Starlette) -> None:
    text = re.sub(r"<[^>]+>", " ", get(app, "/datasets/photos/3").text)
    told = " ".join(text.split())
    for words in ("7 inputs", "5 records 71.4 %", "1 quarantined 14.3 %", "train 5 100 %"):
        assert words in told
    assert "the newest" in told
    assert "the newest" not in get(app, "/datasets/photos/2").text


def test_runs_are_sorted_by_a_figure_and_those_without_come_last(app: Starlette) -> None:
    def order(sort: str) -> list[str]:
        return re.findall(r'href="/runs/([^"/]+)"', get(app, f"/runs?sort={sort}").text)

    assert order("-accuracy")[:2] == ["first", "second"]
    assert order("accuracy")[:2] == ["second", "first"]
    assert order("no-such-column") == order("-changed")


def test_a_comparison_marks_the_best_and_lists_only_what_differs(places: Path) -> None:
    runs = places / "compared"
    one = make_run(runs, "one", 0.75)
    make_run(runs, "two", 0.5)
    settings = (one / "environment.json").read_text().replace('"small_cnn"', '"ResNet50"')
    (one / "environment.json").write_text(settings)
    app = create_app(PageOptions(str(places / "datasets"), str(runs)))
    text = get(app, "/compare?run=one&run=two").text
    assert "<b>75.0%</b> <small>best</small>" in text
    assert re.findall(r'<th scope="row">(\w+\.\w+)</th>', text) == ["model.name"]
    assert text.count('<path class="curve-number1"') >= 1


def test_the_rate_of_a_finished_run_is_that_of_its_report(app: Starlette) -> None:
    assert "<b>812</b> images a second" in get(app, "/runs/first").text
    assert "in the last steps <b>640</b> images a second" in get(app, "/runs/unfinished").text


def test_a_curve_grows_while_the_run_trains(places: Path) -> None:
    runs = places / "growing"
    folder = make_run(runs, "growing", None)
    app = create_app(PageOptions(str(places / "datasets"), str(runs)))
    before = get(app, "/runs/growing/live")
    write_curves(folder, 5, first=4)
    after = get(app, "/runs/growing/live")
    assert "step <b>3</b>" in before.text
    assert "step <b>8</b>" in after.text
    assert before.text.count("<circle") < after.text.count("<circle")
    assert "x-ended" not in after.headers
    make_run(runs, "ended")
    assert "x-ended" in get(create_app(PageOptions("/none", str(runs))), "/runs/ended/live").headers


def test_a_run_that_learned_from_purged_records_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, "learned")
    app = create_app(PageOptions("/none", str(tmp_path)))
    assert "purged" not in get(app, "/runs/learned").text
    (run / "purged.json").write_text('{"abc": {"num_learned": 3}}')
    assert "trained on 3 purged records" in get(app, "/runs/learned").text
    (run / "purged.json").write_text("{")
    assert "cannot be read" in get(app, "/runs/learned").text


def test_long_lists_are_cut_into_pages(tmp_path: Path) -> None:
    for version in range(1, 121):
        publish(tmp_path / "datasets", "many", version)
    app = create_app(PageOptions(str(tmp_path / "datasets"), str(tmp_path / "runs")))
    first, last = get(app, "/datasets/many").text, get(app, "/datasets/many?page=3").text
    assert (first.count("<tr>"), last.count("<tr>")) == (51, 21)
    assert "Page 1 of 3" in first
    assert 'href="/datasets/many?page=2"' in first
    for nonsense in ("0", "99", "-1", "x", "9" * 30):
        assert get(app, f"/datasets/many?page={nonsense}").status_code == 200


def test_many_runs_are_read_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", "run-0")
    for number in range(1, 1500):
        copy = tmp_path / "runs" / f"run-{number}"
        copy.mkdir()
        for name in ("run.json", "result.json"):
            (copy / name).hardlink_to(folder / name)
    app = create_app(PageOptions(str(tmp_path / "datasets"), str(tmp_path / "runs")))
    first = _seconds(app)
    time.sleep(2.1)  # the list is kept for two seconds
    assert _seconds(app) < max(first, 0.5)
    assert "Page 1 of 30" in get(app, "/runs").text


def _seconds(app: Starlette) -> float:
    begun = time.process_time()
    assert get(app, "/runs").status_code == 200
    return time.process_time() - begun


def test_ranks_have_curves_of_their_own(tmp_path: Path) -> None:
    run = make_run(tmp_path, "ranks", None)
    with (run / "curve.jsonl").open("a") as file:
        for step, rank in itertools.product((1, 2), (10, 9)):
            file.write(f'{{"rank": {rank}, "step": {step}, "step_seconds": 0.5, "device": "cpu"}}\n')
    text = get(create_app(PageOptions("/none", str(tmp_path))), "/runs/ranks").text
    assert "step seconds, each rank" in text
    assert text.index("rank 9, step 1") < text.index("rank 10, step 1")


@pytest.mark.parametrize(
    "content", ["[]\n", '{"split": "train"}\n', '{"split": 1, "step": "x"}\n', "\ufffd\n", "{"]
)
def test_a_damaged_curve_hides_nothing_else(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path, "damaged")
    (run / "curve.jsonl").write_text(content)
    answer = get(create_app(PageOptions("/none", str(tmp_path))), "/runs/damaged")
    assert answer.status_code == 200
    assert "75.0%" in answer.text
