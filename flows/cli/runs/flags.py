"""Options that stand for settings which people often change: ``--epochs 20`` for ``--set run.epochs=20``.

A command takes them by the decorator ``with_flags``. A flag is one row of the table; its help shows the
setting.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from shardmill.infra.errors import ConfigError, UsageError


@dataclass(frozen=True, slots=True)
class Flag:
    """An option that stands for a setting.

    Attributes:
        name: the option.
        value: its value in the help.
        keys: the setting that it stands for, by section; a command of several sections sets all of them.
        help: its explanation, in the help of the command.
    """

    name: str
    value: str
    keys: Mapping[str, str]
    help: str

    @property
    def argument(self) -> str:
        """The name of the command's argument."""
        return f"flag_{self.name.strip('-').replace('-', '_')}"


_IMAGE_SIZE = {"prepare": "image.size", "train": "data.image_size"}
FLAGS = (
    Flag("--model", "NAME", {"train": "model.name"}, "The model, such as EfficientNetB0"),
    Flag("--epochs", "N", {"train": "run.epochs"}, "Passes over the train split"),
    Flag("--image-size", "PIXELS", _IMAGE_SIZE, "Side of the images"),
    Flag("--batch-size", "N|auto", {"train": "data.global_batch_size"}, "Examples a step, on all devices"),
    Flag("--learning-rate", "RATE", {"train": "optimizer.learning_rate"}, "The highest rate"),
)


def flag_of(section: str, key: str) -> str | None:
    """The option that stands for a setting."""
    return next((flag.name for flag in FLAGS if flag.keys.get(section) == key), None)


def with_flags(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of these sections; it finds their values among its ``overrides``.

    Overrides of a command of several sections begin with their section.
    """
    flags = [flag for flag in FLAGS if set(sections) & set(flag.keys)]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            overrides = list(given.pop("overrides") or [])
            values = [(flag, given.pop(flag.argument)) for flag in flags]
            more = [
                _overrides(flag, value, sections, overrides) for flag, value in values if value is not None
            ]
            try:
                command(**given, overrides=[*overrides, *(each for some in more for each in some)])
            except ConfigError as error:
                raise _naming_the_flag(error, values) from error

        signature = inspect.signature(command, eval_str=True)
        parameters = list(signature.parameters.values())
        at = next(place for place, one in enumerate(parameters) if one.name == "overrides")
        parameters[at:at] = [_parameter(flag, sections) for flag in flags]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorated


def _naming_the_flag(error: ConfigError, values: Sequence[tuple[Flag, str | None]]) -> ConfigError:
    """Return the error of a setting that a flag gave, with the flag in front."""
    for flag, value in values:
        if value is not None and any(error.message.startswith(f"{key} = ") for key in flag.keys.values()):
            return ConfigError(f"{flag.name} {value}: {error.message}", error.remedy)
    return error


def _parameter(flag: Flag, sections: Sequence[str]) -> inspect.Parameter:
    keys = ", ".join(key for section, key in flag.keys.items() if section in sections)
    option = typer.Option(flag.name, metavar=flag.value, help=f"{flag.help} ({keys})")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(flag.argument, kind, default=None, annotation=Annotated[str | None, option])


def _overrides(flag: Flag, value: str, sections: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return a flag as overrides.

    Raises:
        UsageError: the setting is given twice.
    """
    keys = {section: key for section, key in flag.keys.items() if section in sections}
    for other in overrides:
        key = other.partition("=")[0].strip()
        if key in keys.values() or key in {f"{section}.{own}" for section, own in keys.items()}:
            raise UsageError(
                f"{flag.name} {value} and --set {other}: a setting is given twice",
                f"leave out {flag.name}, or --set {key}",
            )
    prefixed = len(sections) > 1
    return [f"{section}.{key}={value}" if prefixed else f"{key}={value}" for section, key in keys.items()]
