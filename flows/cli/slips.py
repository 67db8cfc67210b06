"""Suggest the command or option that a person meant: the remedy of an error of the command line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shardmill.flows.cli.help import explained, is_argument, typed, usage
from shardmill.flows.cli.tree import Unloaded
from shardmill.infra.near_names import likeness, near_names

# Words for commands that other programs have, or that are parts of ours.
_ALSO_CALLED = {
    "list": ("datasets", "runs", "schedule list", "aliases"),
    "ls": ("datasets", "runs", "aliases", "list"),
    "delete": ("rm", "remove"),
    "remove": ("rm", "schedule remove"),
    "del": ("rm", "remove"),
    "rm": ("remove",),
    "start": ("up", "resume"),
    "serve": ("up", "platform page"),
    "stop": ("down", "pause"),
    "fit": ("train",),
    "info": ("show",),
    "describe": ("show",),
    "view": ("show",),
    "test": ("evaluate",),
    "eval": ("evaluate",),
    "infer": ("predict",),
    "inference": ("predict",),
    "config": ("settings",),
    "options": ("settings",),
    "init": ("prepare",),
    "build": ("prepare",),
    "convert": ("prepare",),
    "ingest": ("prepare",),
    "history": ("versions",),
    "log": ("versions", "status"),
    "logs": ("status",),
    "ps": ("status",),
    "check": ("verify",),
    "validate": ("verify", "evaluate"),
    "add": ("schedule add",),
    "create": ("add",),
    "new": ("add",),
    "notification": ("notify",),
    "alert": ("notify",),
    "retry": ("run",),
    "version": ("--version", "versions"),
    "pause": ("schedule pause",),
    "resume": ("schedule resume",),
}
# Options of other programs, and what stands for them here.
_OPTIONS_ALSO_CALLED = {
    "--gpus": "--devices",
    "--gpu": "--devices",
    "--device": "--devices",
    "--lr": "--learning-rate",
    "--bs": "--batch-size",
    "--batch": "--batch-size",
    "--arch": "--model",
    "--size": "--image-size",
    "--output": "--out",
    "--dir": "--root",
    "--name": "--dataset",
    "--format": "--source-kind",
    "--kind": "--source-kind",
    "--force": "--apply",
    "--yes": "--apply",
    "--dry": "--dry-run",
    "-o": "--out",
    "-v": "--version",
    "-V": "--version",
    "-e": "--epochs",
    "-b": "--batch-size",
    "-m": "--model",
    "-d": "--dataset",
    "-n": "--dry-run",
}
# An argument -> options that people type in its place.
_ARGUMENTS_ALSO_CALLED = {
    "SOURCE": ("source", "src", "input", "inputs", "data", "data-dir", "images", "folder", "path"),
    "RUN": ("run", "model", "model-path", "checkpoint", "ckpt", "weights"),
    "PATHS": ("input", "inputs", "image", "images", "files", "source", "path", "paths"),
    "NAME": ("dataset", "name", "data"),
    "DEST": ("out", "output", "dest", "to", "output-dir"),
}
_NEAR = 0.75


def remedy_of(error: Any, words: Sequence[str], root: Any) -> str:
    """Return the remedy of an error that the parser of the command line raised.

    Args:
        error: it has the context of the command that was parsed.
        words: the command line, without ``shardmill``.
        root: the group of all commands.
    """
    path, command = (
        _command_of(words, root) if error.ctx is None else (error.ctx.command_path, error.ctx.command)
    )
    if hasattr(error, "possibilities"):
        meant = _option_meant(error.option_name, command, path)
    elif hasattr(command, "commands"):
        meant = _command_meant(words, command, path)
    elif str(error.message if hasattr(error, "message") else "").startswith("Got unexpected"):
        meant = _value_of_set(words) or _other_usage(command, path)
    elif (option := _option_of(error, command)) is not None:
        meant = f"{typed(option)}: {explained(option)}"
    else:
        meant = f"write {usage(command, path)}"
    return f"{meant}; see {path} --help" if meant else f"see {path} --help"


def _other_usage(command: Any, path: str) -> str:
    needed = " --source URI" if path == "shardmill locate" else ""
    return f"write {usage(command, path).removesuffix(' [OPTIONS]')}{needed}"


def _command_of(words: Sequence[str], root: Any) -> tuple[str, Any]:
    """The path of the command that a command line names, and the command."""
    path, command = "shardmill", root
    for word in words:
        if not hasattr(command, "commands") or word not in command.commands:
            break
        path, command = f"{path} {word}", command.commands[word]
    return path, command.loaded() if isinstance(command, Unloaded) else command


def _option_of(error: Any, command: Any) -> Any:
    """Return the option whose value is wrong or missing; None if the option itself is missing."""
    if str(error.format_message()).startswith("Missing"):
        return None
    named = getattr(error, "option_name", None)
    found = (one for one in command.params if named is not None and named in one.opts)
    return getattr(error, "param", None) or next(found, None)


def message_of(error: Any) -> str:
    """Return the message of a parser's error, without its suggestion: ``remedy_of`` makes a better one."""
    if hasattr(error, "possibilities"):
        return f"No such option: {error.option_name}"
    message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    return message.partition(". Did you mean")[0]


def _command_meant(words: Sequence[str], group: Any, path: str) -> str | None:
    named = next((word for word in words if not word.startswith("-") and word not in path.split()), "")
    if not named:
        return f"write {path} {'|'.join(group.commands)}" if len(path.split()) > 1 else None
    depth = len(path.split()) - 1
    paths = dict(_paths(group))
    also = _ALSO_CALLED.get(named, _ALSO_CALLED.get(named.removesuffix("s"), ()))
    known = [name for name in also if name in paths or (name.startswith("--") and not depth)]
    known = known or [each for each in paths if each.split()[-1] == named]
    known = known or near_names(named, paths)
    if not known and Path(named).is_dir():
        return f"a folder of images: shardmill run {named} --dataset NAME"
    before = "" if not depth else f"{path} ".removeprefix("shardmill ")
    return f"did you mean {' or '.join(f'shardmill {before}{each}' for each in known)}?" if known else None


def _paths(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if hasattr(command, "commands"):
            yield from _paths(command, f"{before}{name} ")


def _option_meant(option: str, command: Any, path: str) -> str | None:
    options = {
        name: one
        for one in command.params
        if not is_argument(one)
        for name in (*one.opts, *one.secondary_opts)
    }
    arguments = [typed(one) for one in command.params if is_argument(one)]
    for name, also_called in _ARGUMENTS_ALSO_CALLED.items():
        meant = [each for each in arguments if each.lstrip("[").startswith(name)]
        if meant and option.lstrip("-").replace("_", "-") in also_called:
            what = "the dataset" if name == "NAME" else name
            return f"{what} needs no option: {path} {' '.join(arguments)}"
    if option == "--version" and any("@VERSION" in each for each in arguments):
        return f"a version is written NAME@VERSION: {path} NAME@1"
    also = _OPTIONS_ALSO_CALLED.get(option)
    same = [name for name in options if likeness(option.removesuffix("s"), name.removesuffix("s")) == 1]
    near = [also] if also in options else same
    if near:
        return f"did you mean {near[0]}?"
    if setting := _setting_meant(option, options):
        return setting
    found = near_names(option, options, least=_NEAR)
    return f"did you mean {found[0]}?" if found else None


def _setting_meant(option: str, options: dict[str, Any]) -> str | None:
    """A setting that has the name of the option, if the command takes settings."""
    from shardmill.flows.flow_runs.jobs import models_of_runs
    from shardmill.infra.settings import near_settings

    if "--set" not in options or not option.startswith("--"):
        return None
    found = [
        (near.likeness, section, near.setting.key)
        for section, model in models_of_runs().items()
        for near in near_settings(option, model)[:1]
    ]
    own = "train" if "--epochs" in options else "prepare"
    best = max(found, key=lambda each: (each[0], each[1] == own), default=None)
    if best is None or best[0] < _NEAR + 0.1:
        return None
    _, section, key = best
    takes_both = {"--epochs", "--source-kind"} <= options.keys() or "--train" in options
    if section != own and not takes_both:
        return f"{key} is a setting of {section}"
    return f"write --set {key}=VALUE"


def _value_of_set(words: Sequence[str]) -> str | None:
    """``--set KEY VALUE`` or ``KEY=VALUE`` alone in place of ``--set KEY=VALUE``."""
    for at, word in enumerate(words):
        rest = list(itertools.takewhile(lambda each: not each.startswith("-"), words[at + 1 :]))
        if word == "--set" and len(rest) > 1:
            key, value = rest[0].rstrip("="), "".join(rest[1:]).lstrip("=")
            if "=" not in key and value:
                return f"write --set {key}={value}"
    alone = [word for at, word in enumerate(words) if "=" in word and words[at - 1 : at] != ["--set"]]
    plain = [word for word in alone if not word.startswith("-") and "?" not in word]
    return f"write --set {plain[0]}" if plain else None
