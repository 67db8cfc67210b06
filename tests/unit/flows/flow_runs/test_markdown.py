"""Text on the pages of runs is shown literally, also if it contains Markdown or HTML."""

from __future__ import annotations

import base64

import pytest

from shardmill.flows.flow_runs.showing import markdown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words 12", "plain words 12"),
        ("a_b*c", "a\\_b\\*c"),
        ("![x](http://e.example/x)", "\\!\\[x\\]\\(http\\://e.example/x\\)"),
        ("see WWW.e.example", "see WWW\\.e.example"),
        ("- a list, 1. too", "\\- a list, 1. too"),
        ("1. first", "1\\. first"),
        ("<img src=x> & more", "&lt;img src=x&gt; &amp; more"),
        ("two\nlines | cell", "two lines \\| cell"),
        ("\u202egpj", "\\\\u202egpj"),
    ],
)
def test_text_is_escaped(text: str, shown: str) -> None:
    assert markdown.escaped(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a b", "`a b`"), ("a`b", "``a`b``"), ("`x`", "`` `x` ``"), ("two\nlines", "`two lines`")],
)
def test_code_holds_any_text(text: str, shown: str) -> None:
    assert markdown.code(text) == shown


def test_tables_have_escaped_text_and_four_digits() -> None:
    rows = [
        {"class": "a|b", "f1": 0.6931471805599453, "n": 12345},
        {"class": None, "f1": float("nan"), "n": True},
    ]
    assert markdown.table(rows).splitlines() == [
        "| class | f1 | n |",
        "| --- | --- | --- |",
        "| a\\|b | 0.6931 | 12,345 |",
        "|  | nan | yes |",
    ]
    assert markdown.table([]) == ""


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (0.6931471805599453, 0.6931),
        (1234.5678, 1235),
        (40, 40),
        (float("inf"), "inf"),
        ("a*b", "a\\*b"),
        (None, None),
    ],
)
def test_tables_of_prefect_too(value: object, kept: object) -> None:
    assert markdown.table_rows([{"x": value}]) == [{"x": kept}]


def test_a_picture_holds_its_svg() -> None:
    head, _, body = markdown.svg_uri("<svg/>").partition(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(body) == b"<svg/>"
    assert markdown.picture("a]b", "data:,") == "![a\\]b](data:,)"


@pytest.mark.parametrize("text", ["starting (7 s ago)", "a\\b *c* <d> & e", "1,000 of 2,000 images [x]"])
def test_what_was_escaped_is_read_back(text: str) -> None:
    assert markdown.unescaped(markdown.escaped(text)) == text
