"""The functions of the public Python API, as ``docs/python-api.md`` lists them."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import pytest

from shardmill.infra.errors import UsageError

_PAGE = Path(__file__).parents[2] / "docs" / "python-api.md"

# What is called for each record, or what the project makes and hands to users' code, checks nothing.
UNCHECKED = {
    "shardmill.Batch",
    "shardmill.training.torch.data.TorchBatch",
    "shardmill.training.results.pictures.batch.BatchPictures.__init__",
    "shardmill.training.jax.batches.JaxBatch",
    "shardmill.training.grain.sources.GrainSplit",
    "shardmill.training.grain.sources.Examples",
    "shardmill.training.reading.RecordReader",
    "shardmill.Dataset.torch",  # checks its options itself, once PyTorch is there
    "shardmill.training.reading.batch_maker.NumpyBatches",
    "shardmill.training.reading.SplitTable.__init__",
    "shardmill.training.reading.SplitTable.place",  # checks the number itself
    "shardmill.training.reading.SplitTable.id_of",
    "shardmill.beam_jobs.sources.files.walking.IgnorePatterns.match",
    "shardmill.beam_jobs.sources.files.walking.IgnorePatterns.match_path",
    "shardmill.beam_jobs.sources.files.walking.FoundFile",
    "shardmill.beam_jobs.sources.files.walking.SourceFault",
    "shardmill.beam_jobs.sources.kind_modules.Reader",
    "shardmill.beam_jobs.schemas.FileRef",
    "shardmill.beam_jobs.schemas.Status",
    "shardmill.beam_jobs.config.PrepareConfig",  # settings check themselves
    "shardmill.infra.settings.Settings",
}


# Arguments of any type: arrays as numpy takes them, what a framework gives, and types of type checkers alone.
TAKES_ANYTHING = {"images", "labels", "splits", "groups", "sharding", "batch", "view"}


class Wrong:
    """A value of a type that no argument has."""

    def __repr__(self) -> str:
        return "WRONG"


def public_functions(*, of_torch: bool) -> list[tuple[str, Any]]:
    """(name, function) of each function, constructor and method; of PyTorch's part, or of the others."""
    names = re.findall(r"^(shardmill[\w.]*)", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    asked = [name for name in names if (".torch." in name) == of_torch and name not in UNCHECKED]
    found = [pair for name in asked for pair in _functions(name, _imported(name))]
    return [pair for pair in found if pair[0] not in UNCHECKED]


def parameters_of(function: Any) -> Iterator[str]:
    """Yield the names of the arguments of a function, also those of a ``TypedDict`` of options."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            # Not that of the return: its framework may be loaded for type checkers alone.
            hint = eval(function.__annotations__[parameter.name], inspect.unwrap(function).__globals__)
            assert get_origin(hint) is Unpack
            yield from get_type_hints(get_args(hint)[0])
        elif parameter.name != "self" and parameter.kind != parameter.VAR_POSITIONAL:
            yield parameter.name


def _imported(name: str) -> Any:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[end:], module)
    raise AssertionError(f"docs/python-api.md lists {name}, which is not there")


def _functions(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(value):
        yield name, value
    elif inspect.isclass(value) and value.__module__ != "typing":
        for member, function in vars(value).items():
            if isinstance(function, classmethod | staticmethod):
                yield f"{name}.{member}", getattr(value, member)
            elif inspect.isfunction(function) and (member == "__init__" or not member.startswith("_")):
                yield f"{name}.{member}", function


def check_refusals(function: Callable[..., Any]) -> None:
    """Check that a function refuses a wrong value of each argument, and an argument that does not exist."""
    own = [object()] if "self" in inspect.signature(function).parameters else []
    for parameter in parameters_of(function):
        if parameter in TAKES_ANYTHING:
            continue
        with pytest.raises(UsageError, match=f"{parameter} = WRONG"):
            function(*own, **{parameter: Wrong()})
    with pytest.raises(UsageError, match="unknown argument 'nonsense'"):
        function(*own, nonsense=1)
