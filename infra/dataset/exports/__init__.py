"""Copies of a version, or of a view, in the forms of other libraries."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Final

FORMATS: Final = tuple(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent / "formats")]))
