"""Access to the page, and to the files that it hands out."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from starlette.applications import Starlette

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from tests.samples.pages.catalogues import make_run, publish
from tests.samples.pages.served import ask, get


@pytest.mark.parametrize(
    "path",
    [
        "/runs/../secret/report", "/runs/%2e%2e/report", "/runs/..%2fsecret/report",
        "/runs/%2e%2e%2fsecret/report",
        "/runs/first/files/../../../secret/report.html", "/runs/first/files/%2e%2e%2f%2e%2e%2freport.html",
        "/runs/first/files/run.json", "/runs/first/files/environment.json",
        "/runs/first/files/confusion-x.svg",
        "/runs/first/files/confusion-test.svg%00", "/runs/%00/report", "/runs/%ff/report", "/runs/./report",
        "/datasets/../report.html", "/datasets/%2e%2e/1/report", "/datasets/photos/1/data/p/report.html",
        "/datasets/..%2fsecret/1", "/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/page.css/..",
        "/etc/passwd", "//etc/passwd",
    ],
)  # fmt: skip
def test_no_address_leads_to_another_file(app: Starlette, path: str) -> None:
    answer = get(app, path)
    assert answer.status_code == 404
    assert "secret" not in answer.text.replace("&#39;../secret&#39;", "").replace("../secret", "")


def test_reports_and_pictures_are_shut_in_a_sandbox(app: Starlette) -> None:
    for path in ("/datasets/photos/1/report", "/runs/first/report", "/runs/first/files/confusion-test.svg"):
        answer = get(app, path)
        assert answer.status_code == 200
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("sandbox")
        assert "allow-scripts" not in policy
        assert "allow-same-origin" not in policy
    assert get(app, "/runs/first/files/confusion-test.svg").headers["Content-Type"] == "image/svg+xml"


@pytest.mark.parametrize(
    "path", ["/../../report.html", "/etc/passwd", "manifests/000001.json", "data/p/../p/x.html"]
)
def test_a_manifest_cannot_name_another_file_as_its_report(tmp_path: Path, path: str) -> None:
    (tmp_path / "report.html").write_text("the secret")
    publish(tmp_path / "datasets", "evil", report=path)
    app = create_app(PageOptions(str(tmp_path / "datasets"), str(tmp_path / "runs")))
    assert get(app, "/datasets/evil/1/report").status_code == 404


def test_links_in_a_run_folder_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    run = make_run(tmp_path / "runs", "evil")
    for name in ("report.html", "confusion-test.svg"):
        (run / name).unlink()
        (run / name).symlink_to(secret)
    (run / "label-errors.csv").symlink_to(secret)
    app = create_app(PageOptions(str(tmp_path / "datasets"), str(tmp_path / "runs")))
    for path in ("/runs/evil", "/runs/evil/report", "/runs/evil/files/confusion-test.svg"):
        assert "the secret" not in get(app, path).text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xef\xbb\xbfsplit;given_label;suggested_label;score\r\ntest;cat;a dog;0,9\r\n", "a dog"),
        (b"split,given_label,suggested_label\nx\ntest,cat,a dog\n", "a dog"),
        (
            b"split,given_label,suggested_label\nx\ntest,cat,a dog\n",
            "line 2 of label-errors.csv has 1 values",
        ),
        (b"split,suggested_label\ntest,d\xf6g\n", "label-errors.csv is not UTF-8"),
    ],
)
def test_label_errors_that_a_spreadsheet_wrote_are_shown_or_said(
    tmp_path: Path, data: bytes, words: str
) -> None:
    (make_run(tmp_path / "runs", "first") / "label-errors.csv").write_bytes(data)
    app = create_app(PageOptions(str(tmp_path / "datasets"), str(tmp_path / "runs")))
    assert words in get(app, "/runs/first").text


def test_every_answer_is_strict(app: Starlette) -> None:
    for path in ("/", "/runs", "/nope", "/live", "/static/live.js"):
        headers = get(app, path).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/datasets/photos", "/runs/first", "/compare"])
def test_the_page_changes_nothing(app: Starlette, method: str, path: str) -> None:
    assert ask(app, method, path).status_code == 405


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:4201"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_without_a_password_only_own_pages_on_this_machine_are_answered(
    app: Starlette, headers: dict[str, str]
) -> None:
    assert get(app, "/runs", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("team:secret", 200),
        ("team:wrong", 401),
        ("team", 401),
        ("", 401),
        (None, 401),
    ],
)
def test_with_a_password_nobody_looks_without_it(places: Path, given: str | None, status: int) -> None:
    app = create_app(PageOptions(str(places / "datasets"), str(places / "runs"), auth="team:secret"))
    headers = {} if given is None else {"Authorization": f"Basic {base64.b64encode(given.encode()).decode()}"}
    # Other machines know this one by other names.
    headers["Host"] = "shardmill.example:4201"
    for path in ("/", "/runs/first/report", "/static/page.css"):
        answer = get(app, path, headers=headers)
        assert answer.status_code == status
    if status == 401:
        assert "realm" in answer.headers["WWW-Authenticate"]
        assert get(app, "/", headers={"Authorization": "Basic %%%"}).status_code == 401
        assert get(app, "/", headers={"Authorization": "Bearer team:secret"}).status_code == 401


def test_the_password_is_not_shown_by_mistake() -> None:
    assert "secret" not in repr(PageOptions("/d", "/r", auth="team:secret"))
