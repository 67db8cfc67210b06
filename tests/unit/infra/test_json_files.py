"""JSON that is kept in files: what is read, and what is refused by name."""

from __future__ import annotations

import json

import pytest
from typing_extensions import TypedDict

from shardmill.infra.errors import CorruptDataError
from shardmill.infra.json_files import decode_json, open_shape


@open_shape
class Shape(TypedDict):
    names: list[str]


@pytest.mark.parametrize("names", [[], ["naïve 中文"], ["caf\udce9"], ["\udcff\udcfe", "a"]])
def test_names_of_any_bytes_are_read(names: list[str]) -> None:
    text = json.dumps({"names": names, "counts": dict.fromkeys(names, 1)})
    assert decode_json(text, Shape, "here", "remedy") == json.loads(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{", ""),
        ("[]", ""),
        ("{}", "(names)"),
        ('{"names": [1]}', "(names.0)"),
        (r'{"names": ["caf\udce9", 1]}', "(names.1)"),
        (r'{"names": ["caf\udce9"]', ""),
    ],
)
def test_another_shape_is_refused_by_the_name_of_the_file_and_the_key(text: str, key: str) -> None:
    with pytest.raises(CorruptDataError, match=r"^here cannot be read") as refused:
        decode_json(text, Shape, "here", "remedy")
    assert refused.value.message.endswith(key)
