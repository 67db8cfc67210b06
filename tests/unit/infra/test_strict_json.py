"""JSON that any reader can read."""

from __future__ import annotations

import math

import pytest

from shardmill.infra.strict_json import dump_json
from tests.samples.strict_json import strict


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": math.nan, "b": [1.5, math.inf, (-math.inf, 2)]}, '{"a": null, "b": [1.5, null, [null, 2]]}'),
        (math.nan, "null"),
        ({"a": 0.1, "b": [True, None, "NaN"]}, '{"a": 0.1, "b": [true, null, "NaN"]}'),
    ],
)  # fmt: skip
def test_a_number_that_is_not_finite_is_null(value: object, text: str) -> None:
    assert dump_json(value) == text
    strict(text)


def test_the_layout_is_that_of_json() -> None:
    assert dump_json({"b": 1, "a": math.inf}, sort_keys=True, separators=(",", ":")) == '{"a":null,"b":1}'


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN is no JSON"):
        strict('{"loss": NaN}')
    with pytest.raises(TypeError):
        dump_json({"a": object()})
