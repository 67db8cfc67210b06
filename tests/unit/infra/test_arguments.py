"""Arguments of public functions: a wrong type or name is refused at once, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.errors import UsageError
from tests.samples.public_api import check_refusals, public_functions

if TYPE_CHECKING:
    from nowhere import Missing


class Options(TypedDict, total=False):
    size: int
    name: str | None


@checked
def read(  # noqa: PLR0913
    path: str | Path,
    count: int = 1,
    *,
    mode: Literal["fast", 1] = 1,
    share: float = 0.5,
    names: Sequence[str] = (),
    weights: Mapping[str, float] | None = None,
    rows: npt.NDArray[np.int64] | None = None,
    key: Callable[[int], int] | None = None,
    other: Missing | None = None,
    **options: Unpack[Options],
) -> tuple[Any, ...]:
    return path, count, mode, share, names, weights, rows, key, other, options


RIGHT: list[dict[str, Any]] = [
    {"count": np.int64(3), "share": 1, "mode": "fast", "names": ["a"], "weights": {"a": np.float32(1)}},
    {"rows": np.arange(3, dtype=np.int32), "key": len, "other": 7, "size": 2, "name": None},
    {"names": {"a": 1}.keys(), "weights": {}, "path": Path("x")},
]


@pytest.mark.parametrize("given", RIGHT)
def test_what_annotations_take(given: dict[str, Any]) -> None:
    read(**{"path": "x", **given})


def test_numbers_of_numpy_become_numbers() -> None:
    _, count, *_, options = read("x", np.int16(3), size=np.uint8(4))
    assert (type(count), count) == (int, 3)
    assert type(options["size"]) is int


@pytest.mark.parametrize(
    ("given", "message", "remedy"),
    [
        ({"path": 3}, "path = 3 of read is of type int", "give a text or a path"),
        ({"count": "3"}, "count = '3'", "a whole number"),
        ({"count": True}, "count = True", "a whole number"),
        ({"count": None}, "count = None", "a whole number"),
        ({"count": 2.0}, r"count = 2\.0", "a whole number"),
        ({"share": "half"}, "share = 'half'", "a number"),
        ({"mode": True}, "mode = True", "'fast' or 1"),
        ({"mode": ""}, "mode = ''", "'fast' or 1"),
        ({"names": "abc"}, "names = 'abc'", "a list, each part a text"),
        ({"names": [1]}, r"names = \[1\]", "a list, each part a text"),
        ({"weights": {"a": "b"}}, "weights = {'a': 'b'}", "a dict whose values are each a number or None"),
        ({"weights": 0}, "weights = 0", "a dict"),
        ({"rows": np.zeros(2)}, "rows = ", "a numpy array of whole numbers"),
        ({"key": 3}, "key = 3", "a function or None"),
        ({"size": ""}, "size = ''", "a whole number"),
        ({"sizes": 1}, "unknown argument 'sizes' of read", "did you mean 'size'?"),
        ({"zzz": 1}, "unknown argument 'zzz'", "there are: path, count"),
    ],
)
def test_what_they_refuse(given: dict[str, Any], message: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(**{"path": "x", **given})
    assert remedy in str(caught.value.remedy)


def test_bounds() -> None:
    at_least(1, batch_size=1, image_size=None)
    for wrong in (0, -1, float("nan")):
        with pytest.raises(UsageError, match=r"batch_size = .* must be at least 1"):
            at_least(1, batch_size=wrong)


FUNCTIONS = dict(public_functions(of_torch=False))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_refuse_wrong_arguments(name: str) -> None:
    """Each argument by name, whatever the others are, and a name that does not exist."""
    check_refusals(FUNCTIONS[name])
