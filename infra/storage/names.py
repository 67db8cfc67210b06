r"""File names as URIs that are always valid text, and back.

A name on disk is bytes, and they need not be UTF-8; a URI here is text that Arrow, JSON and a terminal can
hold. Bytes that are not UTF-8 become ``\xNN``; a backslash that stands before ``xNN`` in the name itself
becomes ``\x5c``, so that no two names share a URI and each leads back to its file.
"""

from __future__ import annotations

import os
import re
import unicodedata

from shardmill.infra.errors import ConfigError

_DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")


def uri_of(name: str) -> str:
    """The URI of a file name as Python gives it (with surrogate escapes for bytes that are not UTF-8)."""
    if "\\x" in name:
        name = _ESCAPE.sub(r"\\x5cx\1", name)
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def name_of(uri: str) -> str:
    """The file name of a URI that ``uri_of`` made."""
    if "\\x" not in uri:
        return uri
    raw = re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), os.fsencode(uri))
    return os.fsdecode(raw)


def composed(name: str) -> str:
    """Return a name in the composed form of Unicode: a Mac writes é as e and an accent."""
    return unicodedata.normalize("NFC", name)


def stem_of(path: str) -> str:
    """Return a path without the last ending of its name. A name that begins with its only dot stays whole."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0] or name}"


def fault_of_key(key: str) -> str | None:
    """Return why the key of an object is not opened, in words; None if it is.

    Clients of object stores, proxies and tools take such keys for others: ``a//b`` and ``a/./b`` for ``a/b``.
    """
    if {"", ".", ".."}.isdisjoint(key.split("/")):
        return None
    return "a part of its key is empty, . or .., which is not opened: copy the object to another key"


def is_text(name: str) -> bool:
    """Tell whether a file name as Python gives it is UTF-8 text, which Arrow and JSON can hold unchanged."""
    return name.isascii() or name == name.encode("utf-8", "replace").decode("utf-8")


def check_dataset_name(name: str) -> str:
    """Return ``name`` if it can name a folder on every filesystem.

    Raises:
        ConfigError: it cannot.
    """
    if not _DATASET_NAME.fullmatch(name):
        if os.path.isdir(name):  # noqa: PTH112  a name may be no path at all
            root, _, last = name.rstrip("/").rpartition("/")
            made = f"make a dataset of it: shardmill prepare {name} --dataset NAME"
            known = f"give its name and the folder that it is in: {last} --root {root or '.'}"
            is_one = os.path.isdir(os.path.join(name, "manifests"))  # noqa: PTH112, PTH118
            raise ConfigError(f"{name!r} is a folder, not the name of a dataset", known if is_one else made)
        if ":" in name and _DATASET_NAME.fullmatch(name.partition(":")[0]):
            raise ConfigError(
                f"dataset name {name!r} cannot be used", f"a version is written {name.replace(':', '@')}"
            )
        raise ConfigError(
            f"dataset name {name!r} cannot be used",
            "use letters, digits, '.', '_' and '-', starting with a letter or digit (at most 100 characters)",
        )
    return name
