"""Convert the colours of image files to sRGB.

A file may state its colours several times, by ICC profiles, code points and the like. Its format ranks these
statements, and the first sound one counts. Records tell which ones before it are not sound, and the picture
is stored all the same. Without a sound statement it is taken for sRGB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shardmill.infra.codecs.color.hdr import ToneMapping
from shardmill.infra.codecs.color.icc import Conversion, conversion_by_profile, conversion_by_statement
from shardmill.infra.codecs.color.stated import Statement, hdr_of_profile
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.preparation import Hdr

__all__ = ["Choice", "Conversion", "Statement", "ToneMapping", "choose_conversion"]


class Choice(NamedTuple):
    """The conversion of a picture's colours.

    Attributes:
        conversion: None if the colours are those of sRGB already.
        note: what is wrong with the statements that were passed over; "" if there are none.
    """

    conversion: Conversion | ToneMapping | None
    note: str

    def noting(self, more: str) -> Choice:
        """Return the choice with another note in front of its own."""
        return self._replace(note=f"{more}, {self.note}" if self.note else more)


def choose_conversion(statements: Sequence[Statement], mode: str, hdr: Hdr) -> Choice:
    """Choose the conversion to sRGB.

    Args:
        statements: what the file states of its colours, highest rank first.
        mode: Pillow's mode of the images: "L", "RGB", "CMYK" or "LAB".
        hdr: what becomes of HDR.

    Raises:
        ImageRejected: the picture is HDR, which is refused ("unsupported").
    """
    faults: list[str] = []
    for stated in statements:
        hdr_of_icc = hdr_of_profile(stated) if isinstance(stated, bytes) and mode in ("L", "RGB") else None
        statement = hdr_of_icc or stated
        if isinstance(statement, bytes):
            conversion, fault = conversion_by_profile(statement, mode)
            if not fault:
                return Choice(conversion, ", ".join(faults))
            faults.append(fault)
        elif isinstance(statement, str):
            faults.append(statement)
        elif statement.is_hdr:
            if hdr == "quarantine":
                raise ImageRejected(
                    "unsupported", f'its colours are HDR: {statement.name}; image.hdr = "tone-map" stores it'
                )
            return Choice(ToneMapping(statement), ", ".join(faults))
        else:
            return Choice(conversion_by_statement(statement, mode), ", ".join(faults))
    return Choice(None, ", ".join(faults))
