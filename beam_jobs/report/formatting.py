"""Values as people read them, and text made safe to look at."""

from __future__ import annotations

import unicodedata

from markupsafe import Markup, escape

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# A name may be 4,096 bytes long; what is cut out of the middle can be had from the tables.
LONGEST_TEXT = 160
LONGEST_SENTENCE = 1000


def visible(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text as it may be shown: control, direction and unpaired characters become visible escapes.

    Escaping keeps a name from being markup; this keeps it from looking like another name. The middle of very
    long text is left out.
    """
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 2 :]}"
    if text.isprintable():
        return text
    return "".join(f"\\u{ord(character):04x}" if _is_hidden(character) else character for character in text)


def sentence(text: str) -> Markup:
    """Words of ours with names in them, which may be longer than a name."""
    return escape(visible(text, LONGEST_SENTENCE))


def _is_hidden(character: str) -> bool:
    # Joiners are hidden too, but scripts and emoji are spelt with them.
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    return hidden and character not in "\u200c\u200d"


def readable_bytes(value: float) -> str:
    """12.3 MiB"""
    power = 0
    while value >= 1024 and power < len(_BYTE_UNITS) - 1:
        value /= 1024
        power += 1
    whole = power == 0 or value >= 100
    return f"{value:,.0f} {_BYTE_UNITS[power]}" if whole else f"{value:.1f} {_BYTE_UNITS[power]}"


def percent(part: float, whole: float) -> str:
    """A share for an SVG attribute: 43.217%"""
    return f"{100 * part / whole:.3f}%" if whole else "0%"


def share(part: float, whole: float) -> str:
    """A share for people: 43.2 %, <0.1 %"""
    if not whole or not part:
        return "0 %"
    value = 100 * part / whole
    if part < whole and value > 99.9:
        return ">99.9 %"
    return f"{value:.0f} %" if part == whole else f"{value:.1f} %" if value >= 0.1 else "<0.1 %"


def when(created_at: str) -> str:
    """2026-11-21 02:35 UTC of an ISO 8601 time; the text itself where it is another."""
    is_time = len(created_at) >= 16 and created_at[10] == "T"
    return f"{created_at[:10]} {created_at[11:16]} UTC" if is_time else created_at


def pixels(value: float) -> str:
    """1,024 px"""
    return f"{value:,.0f} px"


def ratio(value: float) -> str:
    """0.75"""
    return f"{value:.2f}"
