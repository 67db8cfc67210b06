"""Self-contained pages under a content security policy, and values as text for people.

The policy of a page allows the hash of its style sheet and nothing else, so injected markup could neither
run, load nor style anything. Charts are inline SVG with geometry and colours in attributes.
"""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from shardmill.infra.readable import readable_bytes

if TYPE_CHECKING:  # figures are worded without a template
    from jinja2 import Environment


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
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every text passes here, even if a template forgets a filter. The markup of macros stays as it is.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    made.filters.update(
        bytes=readable_bytes,
        count=lambda value: f"{value:,}",
        when=_when,
        sentence=_sentence,
    )
    made.globals.update(percent=_percent, share=share)
    return made


# A name may be 4,096 bytes long; the tables hold the part that is cut out of its middle.
_LONGEST_TEXT = 160
_LONGEST_SENTENCE = 1000


def visible(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Replace control, direction and unpaired characters by visible escapes, and shorten long text.

    Escaping keeps a name from being markup; this keeps it from looking like another name. The middle of very
    long text is left out.
    """
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 2 :]}"
    if text.isprintable():
        return text
    return "".join(f"\\u{ord(sign):04x}" if _is_hidden(sign) else sign for sign in text)


def _sentence(text: str) -> Markup:
    """Escape a sentence for HTML; it may be longer than a name."""
    return escape(visible(text, _LONGEST_SENTENCE))


def _is_hidden(character: str) -> bool:
    # Joiners are hidden too, but some scripts and emoji need them.
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    return hidden and character not in "\u200c\u200d"


def _percent(part: float, whole: float) -> str:
    """Return a share for an SVG attribute, such as ``43.217%``."""
    return f"{100 * part / whole:.3f}%" if whole else "0%"


def share(part: float, whole: float) -> str:
    """Return a share for people, such as ``43.2 %`` or ``<0.1 %``."""
    if not whole or not part:
        return "0 %"
    value = 100 * part / whole
    if part < whole and value > 99.9:
        return ">99.9 %"
    return f"{value:.0f} %" if part == whole else f"{value:.1f} %" if value >= 0.1 else "<0.1 %"


def _when(created_at: str) -> str:
    """Return an ISO 8601 time as ``2026-11-21 02:35 UTC``; any other text as it is."""
    is_time = len(created_at) >= 16 and created_at[10] == "T"
    return f"{created_at[:10]} {created_at[11:16]} UTC" if is_time else created_at


def pixels(value: float) -> str:
    """Return a length such as ``1,024 px``."""
    return f"{value:,.0f} px"


def ratio(value: float) -> str:
    """Return a ratio such as ``0.75``."""
    return f"{value:.2f}"


def setting_rows(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested configuration as rows such as ("image.size", "256")."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from setting_rows(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "—" if value is None or value in ([], (), {}) else str(value)


def settings_in_use(config: Mapping[str, Any], group: str, choice: str) -> Mapping[str, Any]:
    """Return a configuration without what a group says about options that were not chosen.

    Args:
        config: nested configuration.
        group: its group, such as "runner".
        choice: the setting there that names one of several options; each has its settings in a group of its
            name.
    """
    own = config.get(group, {})
    chosen = own.get(choice)
    kept = {name: value for name, value in own.items() if name == chosen or not isinstance(value, Mapping)}
    return {**config, group: kept}


def differing_settings(*configurations: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return setting -> its value in each of several nested configurations, of the settings that differ."""
    tables = [dict(setting_rows(values)) for values in configurations]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = {name: tuple(table.get(name, "—") for table in tables) for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}
