"""The encoding of a table: from the setting, or from a byte order mark, or UTF-8. Nothing is guessed."""

from __future__ import annotations

import codecs

from shardmill.infra.errors import ConfigError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)


def to_utf8(table: str, data: bytes, encoding: str | None) -> tuple[bytes, str]:
    """Return a table as UTF-8 without a byte order mark, and the name of its encoding.

    Args:
        table: name of the table, for errors.
        data: its bytes.
        encoding: as the user says, or None.

    Raises:
        ConfigError: the bytes are not in that encoding; without one: they are not UTF-8 and have no mark.
    """
    if encoding is not None:
        return _decoded(table, data, encoding, f"--set source.table.encoding={encoding} is wrong"), encoding
    for mark, codec, name in _MARKS:
        if data.startswith(mark):
            return _decoded(table, data, codec, "save the table again"), name
    remedy = "say which encoding it has, for example --set source.table.encoding="
    if b"\0" in data:
        raise ConfigError(f"the table {table} holds zero bytes, as UTF-16 does", f"{remedy}utf-16-le")
    _decoded(table, data, "utf-8", f"{remedy}cp1252")
    return data, "UTF-8"


def _decoded(table: str, data: bytes, codec: str, remedy: str) -> bytes:
    try:
        text = data.decode(codec)
    except UnicodeError as error:
        place = ""
        if isinstance(error, UnicodeDecodeError):
            line = data.count(b"\n", 0, error.start) + 1
            place = f": the byte {data[error.start]:#04x} in line {line:,}"
        raise ConfigError(f"the table {table} is not {codec}{place}", remedy) from error
    return b"" if codec == "utf-8" else text.removeprefix("\ufeff").encode("utf-8", "replace")
