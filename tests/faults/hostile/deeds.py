"""Files that tell a hostile decoder what to do: by a width that no other file has, and by their height."""

WIDTH = 131

DEEDS = (
    "abort",
    "segfault",
    "bus",
    "illegal",
    "arithmetic",
    "exit",
    "kill",
    "sleep",
    "sleep_with_the_gil",
    "sleep_3_seconds",
    "eat",
    "no_memory",
    "short_in_company",
    "crash_in_company",
)

_LEAST_HEIGHT = 90


def height_of(deed: str) -> int:
    """The height (pixels) that stands for a deed."""
    return _LEAST_HEIGHT + DEEDS.index(deed)


def deed_of(width: int, height: int) -> str | None:
    """The deed that an image of this size (pixels) stands for, or None."""
    number = height - _LEAST_HEIGHT
    return DEEDS[number] if width == WIDTH and 0 <= number < len(DEEDS) else None
