"""Aliases of models, such as ``photos@production``: the run that has the alias, and the history of decisions.

::

    <runs>/aliases/<dataset>/<alias>/
      000001.json     a record: an alias was moved to a run, or a candidate did not get it
      000002.json

A record is created if its number is absent, as manifests are: two processes never lose each other's record,
and a record that is half written is never seen. Records are not changed later. The last one that moved the
alias says which run has it. Imports no TensorFlow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardmill.infra.errors import UsageError
from shardmill.infra.storage.locations import check_dataset_name

PRODUCTION = "production"
ALIAS_PATTERN = r"^(?!latest$)[a-z][a-z0-9_-]{0,49}$"

_ALIAS = re.compile(ALIAS_PATTERN.removesuffix("$"))


def check_trained_on(name: str) -> str:
    """Return the name of a dataset, or the names of several joined by +, if they can be such names.

    Raises:
        ConfigError: they cannot.
    """
    return "+".join(map(check_dataset_name, name.split("+")))


@dataclass(frozen=True, slots=True)
class AliasName:
    """An alias of the models of a dataset.

    Attributes:
        dataset: name of the dataset; of several their names, joined by +.
        alias: name of the alias.
    """

    dataset: str
    alias: str = PRODUCTION

    def __post_init__(self) -> None:
        check_trained_on(self.dataset)
        if not _ALIAS.fullmatch(self.alias):
            raise UsageError(
                f"{self.alias!r} cannot name an alias",
                "use a small letter, then small letters, digits, '_' and '-' (at most 50 characters); "
                "'latest' is the newest version of a dataset",
            )

    def __str__(self) -> str:
        return f"{self.dataset}@{self.alias}"


def names_an_alias(text: str) -> bool:
    """Return whether ``NAME@WORD`` names an alias rather than a version of a dataset."""
    _, mark, word = text.partition("@")
    return bool(mark) and _ALIAS.fullmatch(word) is not None


def parse_alias(text: str) -> AliasName:
    """Return the alias that ``NAME@ALIAS`` names; ``NAME`` alone is its alias ``production``.

    Raises:
        UsageError: the text is not of this form. ConfigError: the name of the dataset cannot be used.
    """
    dataset, mark, alias = text.partition("@")
    return AliasName(dataset, alias if mark else PRODUCTION)
