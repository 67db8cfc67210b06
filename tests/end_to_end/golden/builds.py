"""The libraries that shape stored bytes: other builds of them store other bytes."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version

from PIL import features

from shardmill.infra.codecs import RULES, codec_builds

# Pillow's wheels bring most of these along. zlib, which compresses PNG files, may be the system's.
_PARTS_OF_PILLOW = ("libjpeg_turbo", "jpg_2000", "libtiff", "webp", "avif", "zlib_ng", "zlib")


_LEFT_OUT = (*RULES, "pydicom")  # no file of DICOM is among the recorded ones


def running_builds() -> dict[str, str]:
    """Map each library to its version.

    The builds of Shardmill's own rules are left out: they announce a change of the stored bytes, which the
    tests must show. The CPU's vector extensions are left out too: the bytes stayed the same when
    OpenCV ran without AVX, and when isal, zlib and WebP ran without AVX-512. Other CPUs were not tried.
    """
    builds = {name: build for name, build in codec_builds("jpeg").items() if name not in _LEFT_OUT}
    builds |= {name: version(name) for name in ("isal", "numpy", "pyarrow")}
    builds |= {f"pillow {part}": features.version(part) or "absent" for part in _PARTS_OF_PILLOW}
    return {"machine": platform.machine(), **builds}


def difference(recorded: Mapping[str, str]) -> str | None:
    """Name the builds that differ from the recorded ones in a sentence, or return None if none differs."""
    running = running_builds()
    differing = [
        f"{name} is {running.get(name, 'absent')} here and was {recorded.get(name, 'absent')} when recorded"
        for name in sorted({*recorded, *running})
        if running.get(name) != recorded.get(name)
    ]
    return "; ".join(differing) or None
