"""Where storages are, as text: all of a URI to open it with, the part that people may see, and the defaults.

A URI of an object store can carry credentials and options: ``s3://key:secret@bucket/folder?scheme=http``.
What is shown, logged, published or compared is ``s3://bucket/folder`` alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote

# A secret may hold a slash, which a URI should escape: libraries refuse that, and quote it in their message.
_USER = r"[^/?#]*|[^/?#:]*:(?!\d+/)[^?#]*"
_URI = re.compile(
    rf"(?P<scheme>[A-Za-z][\w+.-]*://)(?:(?P<user>{_USER})@)?(?P<place>[^?#]*)(?P<options>.*)", re.DOTALL
)
_HIDDEN = "***"
# Values of options that say where and how, so that a message about them can be understood.
_PLAIN_OPTIONS = frozenset({"region", "scheme", "endpoint_override"})


def public_location(location: str) -> str:
    """The location without user, password and options; a local path as it is."""
    found = _URI.fullmatch(location)
    if found is None:
        return location
    return found["scheme"] + (found["place"].rstrip("/") or found["place"])


def below(location: str, tail: str) -> str:
    """The location of ``tail`` in the folder at ``location``, with the same credentials and options."""
    found = _URI.fullmatch(location)
    if found is None:
        return f"{location.rstrip('/')}/{tail}"
    begin, options = location[: found.start("options")], found["options"]
    return f"{begin.rstrip('/')}/{tail}{options}"


def without_secrets(text: str, location: str) -> str:
    """``text``, such as the message of a library, without what only the opener of ``location`` may know."""
    found = _URI.fullmatch(location)
    if found is None:
        return text
    text = text.replace(location, public_location(location))
    secrets = {part for part in (found["user"] or "").split(":") if part}
    options = parse_qsl(found["options"].lstrip("?"), keep_blank_values=False)
    secrets |= {value for name, value in options if name not in _PLAIN_OPTIONS}
    for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text


def absolute_path(path: str) -> str:
    """The path from the root on, without ``..``: a folder has one such name from wherever it is given.

    What stands before a ``..`` is resolved as the system does; links behind it keep their names, since what
    they lead to may change.
    """
    found = Path(path).expanduser().absolute()
    up = max((number for number, part in enumerate(found.parts, 1) if part == ".."), default=0)
    return str(Path(*found.parts[:up]).resolve().joinpath(*found.parts[up:])) if up else str(found)


def default_root() -> str:
    """Where datasets live unless the user says otherwise: ``$SHARDMILL_ROOT`` or ``./datasets``."""
    return os.environ.get("SHARDMILL_ROOT", "datasets")


def default_runs() -> str:
    """Where training runs live unless the user says otherwise: ``$SHARDMILL_RUNS`` or ``./runs``."""
    return os.environ.get("SHARDMILL_RUNS", "runs")
