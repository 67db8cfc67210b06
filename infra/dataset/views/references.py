"""References to datasets: ``name``, ``name@3``, ``name@latest``, and views such as ``name@3?width > 800``.

Several data sets are joined by semicolons: ``photos@3; web@1?licence == 'CC0'``. Among them may stand

* ``train += synthetic@2``: this one is read in the split "train" alone
* ``classes = {"auto": "car"}``: other names of classes, before they are joined by name
* ``without near-duplicates``: records of train that look the same as one of another data set are left out
* ``missing classes are ignored``, or ``absent``: in the images of a data set without a class, it is not known
  whether they show it, or they do not

What follows the question mark is a query. Percent escapes in it are decoded as in a URL (``%20`` is a blank,
``%25`` a percent sign), so a reference can be quoted for a shell or encoded for a URL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import unquote

from shardmill.infra.digests import digest_of
from shardmill.infra.errors import UsageError
from shardmill.infra.strict_json import dump_json

_ONLY_TRAIN = re.compile(r"train\s*\+=\s*")
_WITHOUT_NEAR = "without near-duplicates"
Missing = Literal["ignored", "absent"]  # classes that a data set lacks
MISSING_CLASSES: Final[dict[Missing, str]] = {
    "ignored": "missing classes are ignored",
    "absent": "missing classes are absent",
}
_CLASSES = re.compile(r"classes\s*=\s*(?=\{)")
# Semicolons between data sets, not those in a text of a query or a map.
_PIECES = re.compile(r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^;])+""")
_MISSING = {words: missing for missing, words in MISSING_CLASSES.items()}
_MOST_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference, cut into its parts.

    Attributes:
        name: name of the dataset.
        version: the text behind ``@``; empty: the newest version.
        query: the query of a view, decoded; None: the whole version.
    """

    name: str
    version: str = ""
    query: str | None = None

    def __str__(self) -> str:
        whole = f"{self.name}@{self.version}" if self.version else self.name
        return whole if self.query is None else f"{whole}?{self.query.replace('%', '%25')}"


def parse_reference(text: str) -> Reference:
    """Cut a reference into name, version and query.

    Raises:
        UsageError: an @ without a version, a question mark without a query, or percent escapes that are not
            UTF-8.
    """
    whole, mark, escaped = text.partition("?")
    name, at, version = whole.partition("@")
    if at and not version:
        raise UsageError(f"{text!r} has no version after the @", f"give its number, or use {name!r}")
    if not mark:
        return Reference(name, version)
    try:
        query = unquote(escaped, errors="strict").strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"the percent escapes of {text!r} are not UTF-8", "write %25 for a %") from error
    if not query:
        raise UsageError(f"{text!r} has no query after the question mark", f"give one, or use {whole!r}")
    return Reference(name, version, query)


@dataclass(frozen=True, slots=True)
class Part:
    """One of several data sets.

    Attributes:
        reference: names it.
        only_train: it is read in the split "train" alone.
    """

    reference: Reference
    only_train: bool = False

    def __str__(self) -> str:
        return f"{'train += ' if self.only_train else ''}{self.reference}"

    def has(self, split: str) -> bool:
        """Tell whether records of a split are read."""
        return not self.only_train or split == "train"


@dataclass(frozen=True, slots=True)
class JoinedReference:
    """References of several data sets that are read as one.

    Attributes:
        parts: the data sets.
        classes: other names of classes, under which they are joined.
        drops_near: records of train that look the same as one of another data set are left out.
        missing: whether a class that a data set lacks is absent from its images, or ignored in the loss and
            the figures of them; None: not said.
    """

    parts: tuple[Part, ...]
    classes: Mapping[str, str] = field(default_factory=dict)
    drops_near: bool = False
    missing: Missing | None = None

    def __str__(self) -> str:
        given = [f"classes = {dump_json(dict(self.classes))}"] if self.classes else []
        given += [_WITHOUT_NEAR] if self.drops_near else []
        given += [MISSING_CLASSES[self.missing]] if self.missing else []
        return "; ".join([*map(str, self.parts), *given])

    @property
    def name(self) -> str:
        """The names of the datasets with splits of their own, joined by +.

        If they are too long for a folder, the first, how many more, and a digest of all.
        """
        names = list(dict.fromkeys(part.reference.name for part in self.parts if not part.only_train))
        joined = "+".join(names)
        if len(names) == 1 or len(joined) <= _MOST_CHARACTERS:
            return joined
        return f"{names[0]}+{len(names) - 1}-{digest_of(names, length=8)}"

    @property
    def version(self) -> str:
        """The version of the first."""
        return self.parts[0].reference.version

    @property
    def query(self) -> str | None:
        """What tells it apart from others of its name and version: the query of a view, or the whole text."""
        return self.parts[0].reference.query if self.is_one else str(self)

    @property
    def series(self) -> str:
        """What references to other versions of the same data sets have in common."""
        parts = (replace(part, reference=replace(part.reference, version="")) for part in self.parts)
        return str(replace(self, parts=tuple(parts)))

    @property
    def newest(self) -> JoinedReference:
        """The same data sets in their newest versions, each once."""
        parts: dict[Reference, Part] = {}
        for part in self.parts:
            newest = replace(part.reference, version="")
            parts.setdefault(newest, replace(part, reference=newest))
        several = len(parts) > 1
        return JoinedReference(
            tuple(parts.values()),
            self.classes,
            self.drops_near and several,
            self.missing if several else None,
        )

    @property
    def tested(self) -> JoinedReference:
        """Those whose splits other than "train" are read."""
        return replace(self, parts=tuple(part for part in self.parts if not part.only_train))

    @property
    def is_one(self) -> bool:
        """Whether this is one data set as it is."""
        return len(self.parts) == 1 and not self.classes and not self.parts[0].only_train


def parse_joined(text: str) -> JoinedReference:
    """Cut the references of one or several data sets apart.

    Raises:
        UsageError: as ``parse_reference``; the map of classes is no JSON object of names; or the first data
            set is read in the split "train" alone.
    """
    parts: list[Part] = []
    classes: dict[str, str] = {}
    drops_near, missing = False, None
    for piece in _PIECES.findall(text) or [text]:
        stripped = piece.strip()
        if found := _CLASSES.match(stripped):
            classes |= _class_map(stripped[found.end() :])
        elif stripped == _WITHOUT_NEAR:
            drops_near = True
        elif stripped in _MISSING:
            missing = _MISSING[stripped]
        elif stripped or ";" not in text:
            rest = _ONLY_TRAIN.sub("", stripped, count=1) if _ONLY_TRAIN.match(stripped) else stripped
            parts.append(Part(parse_reference(rest), rest != stripped))
    if not parts or parts[0].only_train:
        raise UsageError(
            f"{text!r} begins with no data set of its own splits",
            "begin with the one whose validation and test splits count: photos@3; train += synthetic@2",
        )
    if drops_near and len(parts) == 1:
        raise UsageError(
            f"{text!r} names one data set",
            "its own near-duplicates are found when it is prepared: groups.leakage = 'drop-from-train'",
        )
    if missing and len(parts) == 1:
        raise UsageError(f"{text!r} names one data set", "leave the missing classes out: it has its own")
    return JoinedReference(tuple(parts), classes, drops_near, missing)


def whole_versions(text: str) -> list[str]:
    """Return the references of the whole versions that a reference names, or views of them, each once."""
    parts = (replace(part.reference, query=None) for part in parse_joined(text).parts)
    return list(dict.fromkeys(map(str, parts)))


def joined_text(
    refs: str | Sequence[str],
    classes: Mapping[str, str] | None = None,
    *,
    drop_near: bool = False,
    missing: Missing | None = None,
) -> str:
    """Return the reference of one or several data sets.

    Args:
        refs: the references.
        classes: other names for their classes.
        drop_near: leave out records of train that look the same as one of another data set.
        missing: see ``JoinedReference``.

    Raises:
        UsageError: there is none, or ``missing`` is neither.
    """
    pieces = [refs] if isinstance(refs, str) else [*refs]
    if not pieces:
        raise UsageError("no dataset is named", "give at least one, such as name@3")
    pieces += [f"classes = {dump_json(dict(classes))}"] if classes else []
    if missing is not None and missing not in MISSING_CLASSES:
        raise UsageError(f"missing_classes = {missing!r}", "give 'ignored' or 'absent'")
    pieces += [_WITHOUT_NEAR] if drop_near else []
    return "; ".join([*pieces, *([MISSING_CLASSES[missing]] if missing else [])])


def _class_map(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"classes = {text!r} cannot be read: {error}", 'write it as in classes = {"auto": "car"}'
        ) from error
    if not isinstance(found, dict) or not all(isinstance(name, str) and name for name in found.values()):
        raise UsageError(f"classes = {text!r}", 'give a name for a name, as in classes = {"auto": "car"}')
    return found


def reference_of(result: Mapping[str, Any]) -> str:
    """Return the reference in the result of a command, made of its ``dataset``, ``version`` and ``view``."""
    if "joined" in result:
        return str(result["joined"])
    query = result["view"]["query"] if "view" in result else None
    return str(Reference(result["dataset"], str(result["version"]), query))
