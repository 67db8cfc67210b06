"""The environment, style sheet and pictures of self-contained pages under a content security policy.

The policy of a page allows the hash of its style sheet and nothing else, so injected markup could neither
run, load nor style anything. Charts are inline SVG with geometry and colours in attributes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from shardmill.infra.html import formatting
from shardmill.infra.readable import readable_bytes


@cache
def style_sheet() -> str:
    """Return the style sheet of all pages."""
    return resources.files("shardmill.infra.html").joinpath("style.css").read_text(encoding="utf-8")


def style_hash(style: str) -> str:
    """Return the SHA-256 of a style sheet as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")


def data_uri(jpeg: bytes) -> Markup:
    """Return a JPEG as a ``src`` attribute that needs no escaping."""
    return Markup("data:image/jpeg;base64,") + Markup(base64.b64encode(jpeg).decode("ascii"))


def environment(load: Callable[[str], str]) -> Environment:
    """Return an environment in which every text is escaped and made visible.

    Args:
        load: template name -> its source.
    """
    made = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every text passes here, even if a template forgets a filter. The markup of macros stays as it is.
        finalize=lambda value: formatting.visible(value) if type(value) is str else value,
    )
    made.filters.update(
        bytes=readable_bytes,
        count=lambda value: f"{value:,}",
        when=formatting.when,
        sentence=formatting.sentence,
    )
    made.globals.update(percent=formatting.percent, share=formatting.share)
    return made
