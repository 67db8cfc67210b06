"""The split that the name of a file or of its folders gives: ``data/train-00000-of-00002.parquet``."""

from __future__ import annotations

import re

from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER

# MNIST calls its test images "t10k".
SPLIT_WORDS = SPLIT_OF_FOLDER | {"t10k": "test"}

_WORD = re.compile(r"[a-z0-9]+")


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: runs of letters and digits."""
    return _WORD.findall(name.lower())


def split_of_name(uri: str) -> str | None:
    """Return the split that a file name gives, or else the nearest of its folders that gives one.

    A name with the words of two splits gives none.
    """
    for part in reversed(uri.split("/")):
        found = {SPLIT_WORDS[word] for word in words_of(part) if word in SPLIT_WORDS}
        if found:
            return found.pop() if len(found) == 1 else None
    return None
