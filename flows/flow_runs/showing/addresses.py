"""Addresses of the platform's own page, and of Prefect's, that the pages of flow runs link to.

A browser follows no ``file://`` link of a page that a server gave. Where `shardmill up` runs its page,
``SHARDMILL_PAGE_URL`` names it, and everything is linked there::

    <page>/datasets/NAME/VERSION            <page>/datasets/NAME/VERSION/report
    <page>/runs/RUN                         <page>/runs/RUN/report
    <page>/tensorboard/

Elsewhere the path is shown, with a command that opens it.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from shardmill.flows.flow_runs.showing.markdown import code, link

PAGE_URL = "SHARDMILL_PAGE_URL"


def page_url() -> str | None:
    """Return the address of the platform's page, without a slash at its end; None: it does not run."""
    return (os.environ.get(PAGE_URL) or "").rstrip("/") or None


def dataset_page(name: str, version: int) -> str | None:
    """Return the address of the page of a dataset version."""
    return _on_page("datasets", name, str(version))


def dataset_report(name: str, version: int) -> str | None:
    """Return the address of the report of a dataset version."""
    return _on_page("datasets", name, str(version), "report")


def run_page(run: str) -> str | None:
    """Return the address of the page of a training run, named by its folder."""
    return _on_page("runs", run)


def run_report(run: str) -> str | None:
    """Return the address of the report of a training run."""
    return _on_page("runs", run, "report")


def tensorboard() -> str | None:
    """Return the address of TensorBoard."""
    page = page_url()
    return f"{page}/tensorboard/" if page else None


def flow_run(run_id: object) -> str:
    """Return the address of a flow run, on the server that shows the link."""
    return f"/runs/flow-run/{run_id}"


def line(name: str, address: str | None, path: str, command: str) -> str:
    """Return a line of Markdown: a link; or, without an address, the path and the command that opens it."""
    if address is not None:
        return f"- {link(name, address)} {code(path)}"
    return f"- {name}: {code(path)}; on the machine that ran it: {code(command)}"


def _on_page(*parts: str) -> str | None:
    page = page_url()
    return None if page is None else "/".join([page, *(quote(part, safe="") for part in parts)])
