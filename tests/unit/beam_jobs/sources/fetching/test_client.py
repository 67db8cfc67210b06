from __future__ import annotations

import pytest

from shardmill.beam_jobs.config import DEFAULT_OPT_OUT
from shardmill.beam_jobs.sources.fetching.client import opted_out_by


@pytest.mark.parametrize(
    ("name", "value", "by"),
    [
        ("X-Robots-Tag", "noai", "X-Robots-Tag: noai"),
        ("x-robots-tag", "NoImageAI, nofollow", "X-Robots-Tag: noimageai"),
        ("X-Robots-Tag", "nofollow", None),
        ("X-Robots-Tag", "max-image-preview:large, noindex", "X-Robots-Tag: noindex"),
        ("X-Robots-Tag", "unavailable_after: 25 Jun 2010 15:00:00 PST", None),
        ("X-Robots-Tag", "otherbot: noindex, noai", None),
        ("X-Robots-Tag", "Shardmill: nofollow, noai", "X-Robots-Tag: noai"),
        ("X-Robots-Tag", "otherbot: noai, shardmill: none", "X-Robots-Tag: none"),
        ("TDM-Reservation", "1", "TDM-Reservation: 1"),
        ("tdm-reservation", " 1 ", "TDM-Reservation: 1"),
        ("TDM-Reservation", "0", None),
        ("X-Other", "noai", None),
    ],
)
def test_headers_that_reserve_an_image(name: str, value: str, by: str | None) -> None:
    assert opted_out_by([("Content-Type", "image/png"), (name, value)], DEFAULT_OPT_OUT) == by


def test_directives_that_are_not_honoured_reserve_nothing() -> None:
    assert opted_out_by([("X-Robots-Tag", "noindex"), ("TDM-Reservation", "1")], ["noai"]) is None


def test_each_of_several_headers_counts() -> None:
    headers = [("X-Robots-Tag", "otherbot: noai"), ("X-Robots-Tag", "noai")]
    assert opted_out_by(headers, DEFAULT_OPT_OUT) == "X-Robots-Tag: noai"
