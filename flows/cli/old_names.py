"""The commands and options of the last release: they work for one more release, with a hint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardmill.training.aliases import names_an_alias

Words = list[str]


@dataclass(frozen=True, slots=True)
class OldName:
    """A command line of the last release.

    Attributes:
        was: what one typed.
        now: what one types.
        renewed: returns the words of a command line, without ``shardmill``, as one types them now; None if
            it does not have this old name.
    """

    was: str
    now: str
    renewed: Callable[[Words], Words | None]


def translated(words: Sequence[str]) -> Words:
    """Return the words of a command line, without ``shardmill``, under the names of this release.

    An old name is told on standard error, with the new one.
    """
    found = list(words)
    for old in OLD_NAMES:
        new = old.renewed(found)
        if new is not None:
            found = new
            print(f"note: shardmill {old.was} is now: shardmill {old.now}", file=sys.stderr, flush=True)
    return found


def _moved(was: str, now: str) -> OldName:
    def renewed(words: Words) -> Words | None:
        return [*now.split(), *words[1:]] if words[:1] == [was] else None

    return OldName(was, now, renewed)


def _sources(words: Words) -> Words | None:
    if words[:1] != ["sources"]:
        return None
    return ["settings", "source", *words[1:]] if "--json" in words else ["prepare", "--help"]


def _rollback_of_alias(words: Words) -> Words | None:
    if words[:1] != ["rollback"]:
        return None
    if not any(word.startswith("--alias") or names_an_alias(word) for word in words[1:]):
        return None
    # The options of a version, which were taken here too.
    of_version = [at for at, word in enumerate(words) if word.partition("=")[0] in ("--root", "--key")]
    left_out = {*of_version, *(at + 1 for at in of_version if "=" not in words[at])}
    return ["model", *(word for at, word in enumerate(words) if at not in left_out)]


_CHANGES = ("remove", "pause", "resume")


def _schedule(words: Words) -> Words | None:
    command, rest = words[:1], words[1:]
    if command != ["schedule"] or (rest and rest[0] in ("add", "list", *_CHANGES, "--help", "-h")):
        return None
    if rest and not rest[0].startswith("-") and not any(word.startswith("--dataset") for word in rest):
        return None  # a command that is written wrongly
    for name in _CHANGES:
        if f"--{name}" in rest:
            return ["schedule", name, *(word for word in rest if word != f"--{name}")]
    return ["schedule", "list" if not rest or rest == ["--json"] else "add", *rest]


_CONDITIONS = {"--new-records": "new", "--new-share": "share", "--days": "days"}
_WITH_VALUE = ("--every", "--recipe", "--config", "--set")


def _train_when(words: Words) -> Words | None:
    if words[:1] != ["train-when"]:
        return None
    conditions, options, dataset = [], [], ""
    rest = iter(words[1:])
    for word in rest:
        option, equals, value = word.partition("=")
        if option in _CONDITIONS:
            conditions.append(f"{_CONDITIONS[option]}={value if equals else next(rest, '')}")
        elif word == "--drift":
            conditions.append("drift")
        elif word.startswith("-"):
            options += [word, *([next(rest, "")] if option in _WITH_VALUE and not equals else [])]
        else:
            dataset = word
    if "--remove" in options:
        options.remove("--remove")
        return ["schedule", "remove", "--dataset", dataset, "--name", "train-when", *options]
    if not dataset and not {"--help", "-h"} & set(options):
        return ["schedule", "list", *options]
    when = ["--train-when", ",".join(conditions)] if conditions else []
    return ["schedule", "add", "--dataset", dataset, "--train", *when, *options]


def _profile_picture(words: Words) -> Words | None:
    if words[:1] != ["profile"] or not any(word.partition("=")[0] == "--picture" for word in words):
        return None
    return [
        word.replace("--picture", "--out", 1) if word.partition("=")[0] == "--picture" else word
        for word in words
    ]


def _show_augmented(words: Words) -> Words | None:
    """Read the old form ``--augmented FILE``. A word without an ending is a dataset, not a file."""
    if words[:1] != ["show"]:
        return None
    for at, word in enumerate(words):
        option, _, file = word.partition("=")
        if option == "--augmented":
            file, after = (file, at + 1) if file else ("".join(words[at + 1 : at + 2]), at + 2)
            is_file = "." in file.rpartition("/")[2] and not file.startswith("-") and "--out" not in words
            return [*words[:at], "--augmented", "--out", file, *words[after:]] if is_file else None
    return None


OLD_NAMES: tuple[OldName, ...] = (
    _moved("import", "prepare --as-is"),
    OldName("sources", "prepare --help", _sources),
    _moved("balance", "show"),
    _moved("promote", "model promote"),
    _moved("aliases", "model aliases"),
    OldName("rollback NAME@ALIAS", "model rollback NAME@ALIAS", _rollback_of_alias),
    _moved("page", "platform page"),
    _moved("reap", "platform reap"),
    _moved("deploy", "platform deploy"),
    _moved("server", "platform server"),
    _moved("backup", "platform backup"),
    _moved("restore", "platform restore"),
    OldName("schedule [SOURCE]", "schedule add|list|pause|resume|remove", _schedule),
    OldName("train-when NAME", "schedule add --dataset NAME --train --train-when CONDITIONS", _train_when),
    OldName("profile --picture FILE", "profile --out FILE", _profile_picture),
    OldName("show --augmented FILE", "show --augmented --out FILE", _show_augmented),
)
