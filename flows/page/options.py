"""The content of the platform's page, and access to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from markupsafe import Markup

# Where TensorBoard listens, for the process of the page.
TENSORBOARD_URL = "SHARDMILL_TENSORBOARD_URL"
REVIEW = "SHARDMILL_REVIEW"  # 1: its page may write decisions


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The places that a page shows.

    Attributes:
        root: folder or URI of the datasets.
        runs: folder of the training runs, absolute, or its URI.
        auth: the password as ``user:password``; None: everybody on this machine may look.
        api_url, api_auth: address of Prefect's API and its password; None: the page shows folders alone.
        ui_url: address of Prefect's web interface, for links; None without one.
        tensorboard_url: where TensorBoard listens on this machine; None without one.
        review: whether decisions about records may be written.
    """

    root: str
    runs: str
    auth: str | None = field(default=None, repr=False)
    api_url: str | None = None
    api_auth: str | None = field(default=None, repr=False)
    ui_url: str | None = None
    tensorboard_url: str | None = None
    review: bool = False


def options_of_environment(environment: Mapping[str, str] = os.environ) -> PageOptions:
    """Return the options that `shardmill up` leaves in the environment of the page's process."""
    return PageOptions(
        root=environment["SHARDMILL_ROOT"],
        runs=environment["SHARDMILL_RUNS"],
        auth=environment.get("PREFECT_SERVER_API_AUTH_STRING") or None,
        api_url=environment.get("PREFECT_API_URL"),
        api_auth=environment.get("PREFECT_API_AUTH_STRING") or None,
        ui_url=environment.get("PREFECT_UI_URL"),
        tensorboard_url=environment.get(TENSORBOARD_URL),
        review=environment.get(REVIEW) == "1",
    )


def path_of(*parts: object) -> Markup:
    """Return an address of this page: its parts, escaped, between slashes. It needs no further escaping."""
    return Markup("").join(Markup(f"/{quote(str(part), safe='')}") for part in parts)


def query_of(**values: object) -> Markup:
    """Return ``?name=value`` of an address. It needs no further escaping."""
    return Markup("?") + Markup("&amp;").join(
        Markup(urlencode({name: value})) for name, value in values.items()
    )
