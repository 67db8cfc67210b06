"""The page of a review, its pictures, and the one address at which the page changes something: decisions."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shardmill.flows.page.platform import Platform
from shardmill.flows.page.rendering import ListPage, list_page, page_from, render
from shardmill.flows.review.findings import REASONS
from shardmill.flows.review.queue import Queue, QueueRow
from shardmill.infra.dataset.decisions import LONGEST, Appended, Decision
from shardmill.infra.errors import DataError
from shardmill.training.aliases.record import this_user

LOG = logging.getLogger("shardmill.page")

_PICTURES = 100  # on one page
_CLASSES = 2_000  # offered
_BODY_BYTES = 1 << 20
_MOST = 500  # decisions of one request
TOKEN = "x-shardmill-token"


def show(request: Request) -> Response:
    """Return the page of the dataset that ``?dataset=`` names, or a list of all."""
    platform: Platform = request.app.state.platform
    name = request.query_params.get("dataset")
    if name is None:
        page = list_page(request, platform.datasets.names())
        words = "What was found in each dataset, to decide about:"
        return render(request, "dataset_names.html.j2", title="Review", page=page, words=words)
    queue, current = platform.reviews.queue(name), platform.reviews.decisions(name)
    asked = {key: request.query_params.get(key, "") for key in ("reason", "label", "state")}
    is_decided = asked["state"] == "decided"
    rows = [row for row in queue.rows if (row.record in current) == is_decided and _is_asked(row, asked)]
    manifest = queue.version.manifest
    counts = queue.counts(current)
    return render(
        request,
        "review.html.j2",
        title=f"Review of {name}",
        name=name,
        version=queue.version.version,
        problems=queue.problems,
        page=list_page(request, rows, _PICTURES) if is_decided else _open_page(request, queue, rows),
        longest=LONGEST,
        current=current,
        reasons=[(each.name, each.words, counts[each.name]) for each in REASONS],
        asked=asked,
        num_open=sum(row.record not in current for row in queue.rows),
        num_decided=sum(row.record in current for row in queue.rows),
        labels=sorted({row.label for row in queue.rows} - {""}),
        classes=manifest.classes[:_CLASSES],
        can_relabel=manifest.label_kind == "class",
        can_write=platform.options.review,
        token=platform.review_token if platform.options.review else "",
        reviewer=(platform.options.auth or this_user()).partition(":")[0],
    )


def _open_page(request: Request, queue: Queue, rows: Sequence[QueueRow]) -> ListPage[QueueRow]:
    """Return the open rows behind the record ``?after=``: those before it may be decided by now."""
    after = request.query_params.get("after", "")
    start = (list_page(request, rows, _PICTURES).number - 1) * _PICTURES
    if after in queue.by_record:
        order = {row.record: number for number, row in enumerate(queue.rows)}
        start = sum(order[row.record] <= order[after] for row in rows)
    # Behind the last one it begins again: what was left out on the way comes back.
    start = start if start < len(rows) else 0
    return page_from(request, rows, _PICTURES, start, lambda row: row.record)


def _is_asked(row: QueueRow, asked: Mapping[str, str]) -> bool:
    return asked["reason"] in ("", *row.findings) and asked["label"] in ("", row.label)


def picture(request: Request) -> Response:
    """Return the picture of a record of a queue."""
    platform: Platform = request.app.state.platform
    places = request.path_params
    data = platform.reviews.picture(places["name"], places["version"], places["record"])
    # A version does not change, but a purge may remove the record.
    headers = {"Cache-Control": "private, max-age=300", "Content-Encoding": "identity"}
    return Response(data, media_type="image/jpeg", headers=headers)


def token(request: Request) -> Response:
    """Return the word that requests to write must have; a page that stays open over a restart asks again."""
    platform: Platform = request.app.state.platform
    return JSONResponse({"token": platform.review_token if platform.options.review else ""})


async def decide(request: Request) -> Response:
    """Add the decisions that the page sends.

    The body is JSON: ``by``, and ``decisions`` with the fields of a ``Decision`` and ``seen``, the key of the
    decision in force that the reviewer saw. The answer tells what was added, what was there before under its
    key, and what another person has decided meanwhile.
    """
    platform: Platform = request.app.state.platform
    _check_is_own(request, platform)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _BODY_BYTES:
            raise HTTPException(413, f"more than {_BODY_BYTES} bytes: send fewer decisions at a time")
    name = request.path_params["name"]
    return await run_in_threadpool(_decide, platform, name, body)


def _check_is_own(request: Request, platform: Platform) -> None:
    """Refuse a request to write that a page of this server did not send.

    A browser adds the password to requests of foreign pages too; it does not let them name this origin, send
    this type of content or read the token.
    """
    if not platform.options.review:
        raise HTTPException(403, "writing is off: start it with --review")
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    given = request.headers.get(TOKEN, "")
    is_json = request.headers.get("content-type", "").partition(";")[0].strip() == "application/json"
    is_own = bool(host) and origin in (f"http://{host}", f"https://{host}")
    if not is_own or request.headers.get("sec-fetch-site", "same-origin") != "same-origin" or not is_json:
        raise HTTPException(403, "only a page of this server may write")
    if not secrets.compare_digest(given.encode(), platform.review_token.encode()):
        raise HTTPException(409, "the server was started again: ask for a new token")


def _decide(platform: Platform, name: str, body: bytes) -> Response:
    if not platform.datasets.versions(name):
        raise HTTPException(404)
    try:
        decisions, seen = _parsed(body)
        appended = platform.reviews.append(name, decisions, seen)
    except DataError as error:
        return JSONResponse({"problem": f"{error.message}. {error.remedy}"}, 422)
    for row in appended.added:
        LOG.info("%s decided %s of %s in %s", row.by, row.decision, row.record, name)
    return JSONResponse(_answer(platform, name, appended))


def _answer(platform: Platform, name: str, appended: Appended) -> dict[str, Any]:
    current = platform.reviews.decisions(name)
    overtaken = {record: _shown(row) for record, row in appended.overtaken.items()}
    done = [row.record for row in (*appended.added, *appended.repeated)]
    return {
        "done": {record: _shown(current.get(record)) for record in done},
        "overtaken": overtaken,
        "num_added": len(appended.added),
    }


def _shown(row: Decision | None) -> dict[str, str] | None:
    names = ("key", "decision", "to", "by")
    return None if row is None else {name: getattr(row, name) for name in names}


def _parsed(body: bytes) -> tuple[list[Decision], dict[str, str | None]]:
    """Return the decisions of a request, and the key that each reviewer saw in force.

    The request names the findings that the page showed: a version published meanwhile may have others.

    Raises:
        DataError: it makes no sense.
    """
    remedy = "reload the page"
    try:
        sent = json.loads(body)
        by, rows = sent["by"], sent["decisions"]
        if not isinstance(rows, list) or not 0 < len(rows) <= _MOST:
            raise DataError(f"a request has 1 to {_MOST} decisions", remedy)
        decisions, seen = [], {}
        for row in rows:
            was, to, reason, run = (row.get(name) or "" for name in ("was", "to", "reason", "run"))
            about = row["key"], row["record"], row["decision"]
            decisions.append(Decision(*about, by, "", was, to, reason, run))
            seen[row["record"]] = row.get("seen") or None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"this is no decision: {error!r}", remedy) from error
    if len(seen) < len(decisions):
        raise DataError("a record has several decisions in one request", remedy)
    return decisions, seen
