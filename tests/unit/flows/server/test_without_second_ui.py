"""Prefect's second web interface cannot be opened; everything else passes."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shardmill.flows.server.answers import WithoutSecondUi
from tests.samples.pages.served import get


async def _passed(_: Request) -> Response:
    return PlainTextResponse("passed")


APP = Starlette(routes=[Route("/{path:path}", _passed)], middleware=[Middleware(WithoutSecondUi)])


@pytest.mark.parametrize("path", ["/v2", "/v2/", "/v2/runs?x=1", "/v2/assets/index.js", "/%76%32/runs"])
def test_its_addresses_lead_back_and_its_choice_is_forgotten(path: str) -> None:
    answer = get(APP, path, headers={"Cookie": "prefect_ui_version=v2"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert 'prefect_ui_version=""; ' in answer.headers["Set-Cookie"]
    assert "Max-Age=0" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("path", ["/", "/v2x", "/runs/v2", "/api/v2/concurrency_limits/"])
def test_all_else_passes(path: str) -> None:
    assert get(APP, path).text == "passed"
