"""The page of a review: what it shows, and who may write what."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.applications import Starlette

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from tests.samples.pages.reviews import decided, make_review
from tests.samples.pages.served import ORIGIN, ask, get

DECISIONS = "/datasets/d/decisions"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("review")
    return folder, make_review(folder, 4)


@pytest.fixture
def folder(made: tuple[Path, list[str]]) -> Path:
    return made[0]


@pytest.fixture
def ids(made: tuple[Path, list[str]]) -> list[str]:
    return made[1]


def page_of(folder: Path, **more: Any) -> Starlette:
    return create_app(PageOptions(str(folder / "datasets"), str(folder / "runs"), review=True, **more))


def sent(app: Starlette, rows: Any, headers: dict[str, str] | None = None, by: str = "ada") -> Any:
    usual = {"Origin": ORIGIN, "X-Shardmill-Token": app.state.platform.review_token}
    return ask(app, "POST", DECISIONS, json={"by": by, "decisions": rows}, headers=usual | (headers or {}))


def one(record: str, key: str = "k", decision: str = "keep", **more: Any) -> list[dict[str, Any]]:
    return [{"key": key, "record": record, "decision": decision, **more}]


def test_the_page_shows_the_queue_and_each_picture(folder: Path, ids: list[str]) -> None:
    app = page_of(folder)
    page = get(app, "/review?dataset=d").text
    assert [page.index(f'data-record="{record}"') for record in ids] == sorted(
        page.index(f'data-record="{record}"') for record in ids
    )
    assert "the model says dog" in page
    assert 'href="?dataset=d"' in get(app, "/review").text
    answer = get(app, f"/datasets/d/1/pictures/{ids[0]}")
    assert (answer.headers["Content-Type"], answer.headers["X-Content-Type-Options"]) == (
        "image/jpeg",
        "nosniff",
    )
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert picture.width * 3 == picture.height * 4
    for record in ("0" * 16, "..%2f..%2fd", "x"):
        assert get(app, f"/datasets/d/1/pictures/{record}").status_code == 404
    assert get(app, "/review?dataset=none").status_code == 404
    assert get(app, "/review?dataset=..").status_code == 404
    assert get(app, "/review?dataset=d&reason=x&label=x&page=9").status_code == 200


def test_decisions_are_added_once_shown_and_told_to_others(folder: Path, ids: list[str]) -> None:
    app, other = page_of(folder), page_of(folder)
    row = one(ids[0], "k0", "relabel", to="dog", was="cat", run="r")
    first = sent(app, row).json()
    assert first["done"] == {ids[0]: {"key": "k0", "decision": "relabel", "to": "dog", "by": "ada"}}
    assert sent(other, row).json()["num_added"] == 0
    assert [each.key for each in decided(folder) if each.record == ids[0]] == ["k0"]
    late = sent(other, one(ids[0], "k1", "exclude"), by="bob").json()
    assert (late["num_added"], late["overtaken"][ids[0]]["by"]) == (0, "ada")
    assert sent(other, one(ids[0], "k1", "undo", seen="k0"), by="bob").json()["done"] == {ids[0]: None}
    sent(app, one(ids[1], "k2", "unsure"))
    open_ones = get(other, "/review?dataset=d").text
    assert f'data-record="{ids[0]}"' in open_ones
    assert f'data-record="{ids[1]}"' not in open_ones
    assert f'data-record="{ids[1]}"' in get(other, "/review?dataset=d&state=decided").text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"X-Shardmill-Token": "guess"}, 409),
        ({"X-Shardmill-Token": ""}, 409),
    ],
)
def test_only_its_own_page_may_write(
    folder: Path, ids: list[str], headers: dict[str, str], status: int
) -> None:
    before = decided(folder)
    assert sent(page_of(folder), one(ids[2]), headers).status_code == status
    assert decided(folder) == before


def test_a_password_does_not_let_other_origins_write(folder: Path, ids: list[str]) -> None:
    app = page_of(folder, auth="team:secret")
    assert sent(app, one(ids[2])).status_code == 401
    known = {"Authorization": "Basic " + base64.b64encode(b"team:secret").decode()}
    assert sent(app, one(ids[2]), known | {"Origin": "https://evil.example"}).status_code == 403
    assert sent(app, one(ids[2], "with-password"), known).status_code == 200
    assert 'value="team"' in get(app, "/review?dataset=d", headers=known).text


def test_writing_is_off_unless_asked_for(folder: Path, ids: list[str]) -> None:
    app = create_app(PageOptions(str(folder / "datasets"), str(folder / "runs")))
    page = get(app, "/review?dataset=d").text
    assert "shardmill up --review" in page
    assert "data-do" not in page
    assert app.state.platform.review_token not in page + get(app, "/review/token").text
    assert sent(app, one(ids[3])).status_code == 403


@pytest.mark.parametrize(
    "rows",
    [
        [], "x", [1], [{}], one("../x"), one("0" * 16, decision="delete"), one("0" * 16, "a b"),
        one("0" * 16, decision="relabel"), one("0" * 16, reason="a\nb"), one("0" * 16, to=["x"]),
        one("0" * 16, decision="relabel", to="x" * 501),
        one("0" * 16, "a") + one("0" * 16, "b"), [{**one("0" * 16)[0], "key": f"k{n}"} for n in range(501)],
    ],
)  # fmt: skip
def test_what_is_no_decision_is_refused_in_words(folder: Path, rows: Any) -> None:
    before = decided(folder)
    answer = sent(page_of(folder), rows)
    assert answer.status_code == 422
    assert answer.json()["problem"]
    assert decided(folder) == before


def test_long_bodies_other_methods_and_other_datasets_are_refused(folder: Path) -> None:
    app = page_of(folder)
    assert sent(app, "x" * (2 << 20)).status_code == 413
    assert ask(app, "GET", DECISIONS).status_code == 405
    headers = {"Origin": ORIGIN, "X-Shardmill-Token": app.state.platform.review_token}
    for name in ("none", "..%2f..%2ftmp", "%00"):
        answer = ask(
            app, "POST", f"/datasets/{name}/decisions", json={"by": "a", "decisions": []}, headers=headers
        )
        assert answer.status_code == 404


def test_the_next_page_has_the_records_that_follow_also_when_this_one_is_decided(tmp_path: Path) -> None:
    ids = make_review(tmp_path, 105)
    app = page_of(tmp_path)

    def shown(address: str) -> tuple[list[str], dict[str, str]]:
        page = get(app, address).text
        links = {
            name: html.unescape(found) for name, found in re.findall('rel="(prev|next)" href="([^"]+)"', page)
        }
        return re.findall('data-record="([0-9a-f]+)"', page), links

    first, links = shown("/review?dataset=d&page=1")
    assert (first, "prev" in links) == (ids[:100], False)
    second, back = shown(links["next"])
    assert second == ids[100:200]
    assert shown(back["prev"])[0] == first
    sent(app, [{**one(record)[0], "key": f"k{number}"} for number, record in enumerate(first)])
    again, later = shown(links["next"])
    assert (again, "prev" in later) == (ids[100:200], False)
    last, back = shown(later["next"])
    assert last == ids[200:]
    assert shown(back["prev"])[0] == ids[100:200]
    sent(app, [{**one(record)[0], "key": f"m{number}"} for number, record in enumerate(last)])
    assert shown(later["next"])[0] == ids[100:200]  # behind the last one it begins again


def test_a_list_that_cannot_be_read_is_told_on_the_page(tmp_path: Path) -> None:
    make_review(tmp_path, 2)
    file = tmp_path / "runs/d-v1-label-errors-5-0123/label-errors.csv"
    file.write_bytes(file.read_text().replace("dog", "d\xf6g").encode("cp1252"))
    answer = get(page_of(tmp_path), "/review?dataset=d")
    assert answer.status_code == 200
    assert re.search(r'<p role="alert">[^<]*label-errors.csv is not UTF-8', answer.text)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>'\"&amp;"
    make_review(tmp_path, 2, (hostile, "cat"))
    page = get(page_of(tmp_path), "/review?dataset=d").text
    assert "<img src=x" not in page
    found = re.search('data-was="([^"]*)"', page)
    assert found is not None
    assert html.unescape(found[1]) == hostile
