"""Check the arguments of public functions against their annotations.

``@checked`` on a function or class refuses, before anything else happens, a value of another type than its
annotation names, and a keyword that the function does not have. Bounds are for the function itself.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import (
    Any,
    BinaryIO,
    Literal,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np

from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.near_names import near_miss
from shardmill.infra.readable import shortened

T = TypeVar("T")
_SHOWN_CHARACTERS = 60
_NUMPY = {np.integer: "iu", np.floating: "f", np.bool_: "b"}
_OF_KINDS = {None: "", "iu": " of whole numbers", "f": " of numbers", "b": " of True and False"}


@dataclass(frozen=True, slots=True)
class _Form:
    """Which values an annotation takes.

    Attributes:
        words: a value of it, as people say it.
        takes: whether a value is one.
        plain: turns a number of numpy into one of Python.
    """

    words: str
    takes: Callable[[Any], bool]
    plain: Callable[[Any], Any] | None = None


_ANYTHING = _Form("any value", lambda _: True)
# Name of an argument in other libraries -> our argument for the same.
_ALSO_CALLED = {
    **dict.fromkeys(("num_workers", "workers", "num_threads", "num_parallel_calls"), "threads"),
    **dict.fromkeys(("drop_remainder", "drop_last"), "last_batch"),
    **dict.fromkeys(("transform", "transforms", "augmentation"), "augment"),
    **dict.fromkeys(("size", "img_size", "target_size"), "image_size"),
    **dict.fromkeys(("world_size", "num_replicas", "num_shards"), "num_ranks"),
    "data_dir": "root",
    "index": "rank",
}


def checked(target: T) -> T:
    """Check the arguments of each call of a function, or of the constructor and public methods of a class.

    Raises:
        ConfigError: when called: an argument is unknown, or of another type than its annotation.
    """
    if isinstance(target, type):
        for name, member in [*vars(target).items()]:
            if name == "__init__" or not name.startswith("_"):
                setattr(target, name, _checked_member(member))
        return target
    function: T = _checked_member(target)
    return function


def check_options(options: Mapping[str, Any], kind: Any, function: str) -> dict[str, Any]:
    """Check keyword arguments that a ``TypedDict`` describes, and return them with numbers of Python.

    Args:
        options: the arguments.
        kind: the ``TypedDict``.
        function: the name of the function that takes them.

    Raises:
        ConfigError: an argument is unknown, or of another type than its annotation.
    """
    return _named(options, _forms_of(kind), function)


def at_least(smallest: float, **values: float | None) -> None:
    """Check the bound of arguments; None is let through.

    Raises:
        UsageError: one is smaller, or not a number.
    """
    for name, value in values.items():
        if value is not None and not value >= smallest:
            raise UsageError(f"{name} = {value} must be at least {smallest}")


def _checked_member(member: Any) -> Any:
    if isinstance(member, classmethod | staticmethod):
        return type(member)(_checked_member(member.__func__))
    if not inspect.isfunction(member):
        return member
    function = member
    name = function.__qualname__.removesuffix(".__init__").rsplit(".", 1)[-1]

    parameters = functools.cache(lambda: _Parameters.of(function))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        known = parameters()
        given = [
            _checked_value(argument, value, form, name)
            for value, (argument, form) in zip(args, known.positional, strict=False)
        ]
        named = _named(kwargs, known.by_name, name, takes_others=known.takes_others)
        return function(*given, *args[len(given) :], **named)

    return call


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The parameters of a function.

    Attributes:
        positional: those that may be given by place.
        by_name: those that may be given by name.
        takes_others: whether it takes further names, which it checks itself.
    """

    positional: list[tuple[str, _Form]]
    by_name: dict[str, _Form]
    takes_others: bool

    @classmethod
    def of(cls, function: Any) -> _Parameters:
        annotated = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
        names = _Names(function.__globals__)
        hints = get_type_hints(types.SimpleNamespace(__annotations__=annotated), names, names)
        found = cls([], {}, any(one.kind == one.VAR_KEYWORD for one in _signature(function)))
        for parameter in _signature(function):
            hint = hints.get(parameter.name, Any)
            if parameter.kind == parameter.VAR_KEYWORD:
                kind = get_args(hint)[0] if get_origin(hint) is Unpack else Any
                if is_typeddict(kind):
                    found.by_name.update(_forms_of(kind))
                    found = replace(found, takes_others=False)
            elif parameter.kind != parameter.VAR_POSITIONAL:
                form = _form(hint)
                found.by_name[parameter.name] = form
                if parameter.kind == parameter.POSITIONAL_OR_KEYWORD:
                    found.positional.append((parameter.name, form))
        return found


def _signature(function: Any) -> list[inspect.Parameter]:
    return [*inspect.signature(function).parameters.values()]


class _Names(dict[str, Any]):
    """The names of a module; one that it imports for type checkers alone stands for any type."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        super().__init__({**vars(builtins), **names})

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)  # no type: a debugger or a test runner looks at the frame
        return _Unknown


class _Unknown:
    """A type whose name only type checkers know, also with parameters: ``Missing[int] | None``."""

    def __class_getitem__(cls, _: Any) -> type[_Unknown]:
        return cls


def _forms_of(kind: Any) -> dict[str, _Form]:
    """Return the form of each key of a ``TypedDict``."""
    return {name: _form(hint) for name, hint in get_type_hints(kind).items()}


def _named(
    given: Mapping[str, Any], forms: Mapping[str, _Form], function: str, *, takes_others: bool = False
) -> dict[str, Any]:
    for name in given:
        if name not in forms and not takes_others:
            known = [one for one in forms if one != "self"]
            meant = _ALSO_CALLED.get(name)
            remedy = f"did you mean {meant!r}?" if meant in known else near_miss(name, known)
            raise ConfigError(f"unknown argument {name!r} of {function}", remedy)
    return {
        name: _checked_value(name, value, forms.get(name, _ANYTHING), function)
        for name, value in given.items()
    }


def _checked_value(name: str, value: Any, form: _Form, function: str) -> Any:
    if not form.takes(value):
        shown = shortened(repr(value), _SHOWN_CHARACTERS)
        kind = type(value).__name__
        raise ConfigError(f"{name} = {shown} of {function} is of type {kind}", f"give {form.words}")
    return value if form.plain is None else form.plain(value)


# -- annotations ---------------------------------------------------------------------------------------------


def _form(hint: Any) -> _Form:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is None or hint is type(None):
        return _Form("None", lambda value: value is None)
    if origin in (Union, types.UnionType):
        return _one_of([_form(part) for part in arguments])
    if origin is Literal:
        words = " or ".join(repr(value) for value in arguments)
        # Not by `in` alone: 1 == True and 1 == 1.0.
        return _Form(words, lambda value: any(type(value) is type(one) and value == one for one in arguments))
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is np.ndarray:
        return _array(arguments)
    kind = origin or hint
    if kind is get_origin(Callable[..., Any]):
        return _Form("a function", callable)
    return _of_class(kind, arguments) if isinstance(kind, type) else _ANYTHING


def _of_class(kind: type, arguments: tuple[Any, ...]) -> _Form:
    if issubclass(kind, Mapping) or is_typeddict(kind):
        values = _form(arguments[1]) if len(arguments) == 2 else _ANYTHING
        return _Form(
            f"a dict whose values are each {values.words}" if values is not _ANYTHING else "a dict",
            lambda value: isinstance(value, Mapping) and all(map(values.takes, value.values())),
        )
    if issubclass(kind, Collection) and arguments and kind not in (str, bytes):
        parts = _form(arguments[0])
        return _Form(
            f"a list, each part {parts.words}",
            lambda value: (
                isinstance(value, Collection)
                and not isinstance(value, str | bytes | Mapping)
                and all(map(parts.takes, value))
            ),
        )
    if getattr(kind, "_is_protocol", False):
        bases = [(*vars(base), *vars(base).get("__annotations__", {})) for base in kind.__mro__]
        members = {name for names in bases for name in names if not name.startswith("_")}
        return _Form(f"a {kind.__name__}", lambda value: all(hasattr(value, name) for name in members))
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    return _Form(f"{article} {kind.__name__}", lambda value: isinstance(value, kind))


def _array(arguments: tuple[Any, ...]) -> _Form:
    """Return the form of ``npt.NDArray[...]``; widths of numbers may differ."""
    scalar = next(iter(get_args(arguments[1])), Any) if len(arguments) == 2 else Any
    is_type = isinstance(scalar, type)
    kinds = next((kind for base, kind in _NUMPY.items() if is_type and issubclass(scalar, base)), None)
    return _Form(
        f"a numpy array{_OF_KINDS[kinds]}",
        lambda value: isinstance(value, np.ndarray) and (kinds is None or value.dtype.kind in kinds),
    )


def _one_of(forms: list[_Form]) -> _Form:
    def plain(value: Any) -> Any:
        form = next(form for form in forms if form.takes(value))
        return value if form.plain is None else form.plain(value)

    words = " or ".join(dict.fromkeys(form.words for form in forms))
    return _Form(words, lambda value: any(form.takes(value) for form in forms), plain)


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


_PLAIN: dict[Any, _Form] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    _Unknown: _ANYTHING,
    BinaryIO: _Form("an open binary file", lambda value: hasattr(value, "read") or hasattr(value, "write")),
    bool: _Form("True or False", lambda value: isinstance(value, bool | np.bool_), bool),
    int: _Form("a whole number", lambda value: _is_number(value, Integral), int),
    float: _Form("a number", lambda value: _is_number(value, Real), float),
    str: _Form("a text", lambda value: isinstance(value, str)),
    Path: _Form("a path", lambda value: isinstance(value, os.PathLike)),
}
