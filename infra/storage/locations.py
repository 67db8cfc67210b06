r"""Locations of storage as text: the URI that opens it, the part that people may see, and the default roots.

A URI of an object store can carry credentials and options: ``s3://key:secret@bucket/folder?scheme=http``.
Only ``s3://bucket/folder`` is shown, logged, published or compared. What stands before the ``@`` in Azure's
``abfs://container@account.dfs.core.windows.net/folder`` is no secret.

File names become URIs that are always valid text, and back. A name on disk is bytes, and they need not be
UTF-8; a URI here is text that Arrow, JSON and a terminal can hold. Bytes that are not UTF-8 become ``\xNN``;
a backslash that stands before ``xNN`` in the name itself becomes ``\x5c``, so that no two names share a URI
and each leads back to its file.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from shardmill.infra.errors import ConfigError, StorageError

# A secret may hold a slash, which a URI should escape: libraries refuse that, and quote it in their message.
_USER = r"[^/?#]*|[^/?#:]*:(?!\d+/)[^?#]*"
_URI = re.compile(
    rf"(?P<scheme>[A-Za-z][\w+.-]*://)(?:(?<!abfs://)(?<!abfss://)(?P<user>{_USER})@)?"
    r"(?P<place>[^?#]*)(?P<options>.*)",
    re.DOTALL,
)
_AZURE_PLACE = re.compile(r"([^/@:]+)@([^/@:.]+)\.(?:dfs|blob)\.core\.windows\.net(?:/.*)?", re.DOTALL)
_SERVER = re.compile(r"(?:(?P<scheme>[A-Za-z][\w+.-]*)://)?(?P<server>[^/?#@\s]+)/?")
_USER_OF_SERVER = re.compile(r".*(?=@)", re.DOTALL)
_ABFS = ("abfs://", "abfss://")
_STORE = re.compile(r"\b(?:s3|gs|gcs|az|abfss?)://.*", re.DOTALL | re.IGNORECASE)
_HIDDEN = "***"
# Values of options that say where and how, so that a message about them can be understood.
_PLAIN_OPTIONS = frozenset({"region", "scheme", "endpoint_override"})


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """Bucket, credentials and endpoint in the URI of a folder in an object store.

    Attributes:
        scheme: ``s3``, ``gs`` or ``az``.
        bucket: name of the bucket, or of the container.
        user: the access key, ``anonymous``, or the storage account; empty if the URI has none.
        password: the secret key, or the key of the account; empty if the URI has none.
        endpoint: URL of the server; None for the provider's own.
        region: region of the bucket, or None.
    """

    scheme: str
    bucket: str
    user: str
    password: str = field(repr=False)
    endpoint: str | None
    region: str | None


def object_location(location: str) -> ObjectLocation | None:
    """Return the parts of the URI; None for a local path.

    Raises:
        StorageError: a URI of ``abfs://`` does not name its container and account; or the address of the
            server is wrong.
    """
    found = _URI.fullmatch(location)
    if found is None:
        return None
    if found["scheme"] in _ABFS:
        return _azure_location(found["place"], location)
    user, _, password = (found["user"] or "").partition(":")
    options = dict(parse_qsl(found["options"].lstrip("?")))
    return ObjectLocation(
        scheme=found["scheme"].removesuffix("://").lower(),
        bucket=found["place"].partition("/")[0],
        user=unquote(user),
        password=unquote(password),
        endpoint=_endpoint(options, public_location(location)),
        region=options.get("region"),
    )


def _endpoint(options: dict[str, str], public: str) -> str | None:
    """Return the URL of the server that options name, as host and port or as a URL.

    Raises:
        StorageError: it is neither, or its scheme is not the one of the option ``scheme``.
    """
    given = options.get("endpoint_override")
    if not given:
        return None
    found = _SERVER.fullmatch(given)
    schemes = {text.lower() for text in ((found and found["scheme"]), options.get("scheme")) if text}
    if found is None or len(schemes) > 1 or not schemes <= {"http", "https"}:
        raise StorageError(
            f"cannot open storage {public}: its endpoint_override={_USER_OF_SERVER.sub(_HIDDEN, given)} "
            + (f"and scheme={options['scheme']} are" if "scheme" in options else "is")
            + " no address of a server",
            "write endpoint_override=HOST:PORT&scheme=http (or https), or endpoint_override=http://HOST:PORT",
        )
    return f"{schemes.pop() if schemes else 'https'}://{found['server']}"


def with_plain_endpoint(location: str) -> str:
    """The location with its server as host and port, and its scheme as an option, as Arrow takes them.

    Raises:
        StorageError: as of ``object_location``.
    """
    found, parts = object_location(location), _URI.fullmatch(location)
    if found is None or parts is None or found.endpoint is None:
        return location
    scheme, _, server = found.endpoint.partition("://")
    options = dict(parse_qsl(parts["options"].lstrip("?"), keep_blank_values=True))
    options |= {"endpoint_override": server, "scheme": scheme}
    return f"{location[: parts.start('options')]}?{urlencode(options)}"


def object_path(location: str) -> str:
    """The bucket or container of a URI and the folder in it: ``bucket/folder``."""
    place = public_location(location).partition("://")[2]
    container, has_account, rest = place.partition("@")
    return f"{container}/{rest.partition('/')[2]}".rstrip("/") if has_account else place


def _azure_location(place: str, location: str) -> ObjectLocation:
    named = _AZURE_PLACE.fullmatch(place)
    if named is None:
        raise StorageError(
            f"{public_location(location)} does not name a container and an account",
            "write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or az://CONTAINER/FOLDER",
        )
    return ObjectLocation("az", named[1], named[2], "", None, None)


def public_location(location: str) -> str:
    """The location without user, password and options; a local path unchanged."""
    found = _URI.fullmatch(location)
    if found is None:
        return location
    return found["scheme"] + (found["place"].rstrip("/") or found["place"])


def public_values(values: Any) -> Any:
    """Remove user, password and options from all locations of object stores in JSON-able settings.

    Args:
        values: text, such as ``s3://key:secret@bucket/table.csv`` or ``source.table.file=s3://...``; lists
            and dicts of text. Anything else is returned unchanged.
    """
    if isinstance(values, str):
        found = _STORE.search(values)
        return values[: found.start()] + public_location(found[0]) if found else values
    if isinstance(values, dict):
        return {key: public_values(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(map(public_values, values))
    return values


def below(location: str, tail: str) -> str:
    """The location of ``tail`` in the folder at ``location``, with the same credentials and options."""
    found = _URI.fullmatch(location)
    if found is None:
        return f"{location.rstrip('/')}/{tail}"
    begin, options = location[: found.start("options")], found["options"]
    return f"{begin.rstrip('/')}/{tail}{options}"


def without_secrets(text: str, location: str) -> str:
    """``text``, such as the message of a library, without the credentials and options of ``location``."""
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
    """The absolute path without ``..``, so that a folder has one name from wherever it is given.

    The part before a ``..`` is resolved as the system does. Links after it keep their names, since their
    targets may change.
    """
    found = Path(path).expanduser().absolute()
    up = max((number for number, part in enumerate(found.parts, 1) if part == ".."), default=0)
    return str(Path(*found.parts[:up]).resolve().joinpath(*found.parts[up:])) if up else str(found)


def default_root() -> str:
    """The default root of datasets: ``$SHARDMILL_ROOT`` or ``./datasets``."""
    return os.environ.get("SHARDMILL_ROOT", "datasets")


def default_runs() -> str:
    """The default folder of training runs: ``$SHARDMILL_RUNS`` or ``./runs``."""
    return os.environ.get("SHARDMILL_RUNS", "runs")


_DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SETTING = re.compile(r"[a-z_.]+=")
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
        if _SETTING.match(name):
            raise ConfigError(f"dataset name {name!r} cannot be used", f"a setting is written --set {name}")
        raise ConfigError(
            f"dataset name {name!r} cannot be used",
            "use letters, digits, '.', '_' and '-', starting with a letter or digit (at most 100 characters)",
        )
    return name
