"""References: name, version and query; commands that need a whole version refuse views."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.views.references import (
    Reference,
    parse_joined,
    parse_reference,
    reference_of,
    whole_versions,
)
from shardmill.infra.errors import NotFoundError, UsageError
from tests.samples.datasets.published import coloured, publish


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("photos", Reference("photos")),
        ("photos@3", Reference("photos", "3")),
        ("photos@latest?width > 8", Reference("photos", "latest", "width > 8")),
        ("photos@3?label%20%3D%3D%20'a%25b'", Reference("photos", "3", "label == 'a%b'")),
        ("photos?label == 'a@b?c'", Reference("photos", "", "label == 'a@b?c'")),
        ("photos?label == '%C3%A9+'", Reference("photos", "", "label == 'é+'")),
        ("photos? width > 8 ", Reference("photos", "", "width > 8")),
    ],
)
def test_a_reference_is_cut_at_its_first_question_mark(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(("text", "words"), [("photos@3?", "no query"), ("photos?a == '%ff'", "UTF-8")])
def test_a_reference_without_a_readable_query_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_reference(text)


def test_the_reference_of_a_result_names_its_view() -> None:
    result = {"dataset": "photos", "version": 3}
    assert reference_of(result) == "photos@3"
    assert reference_of({**result, "view": {"query": "width > 8"}}) == "photos@3?width > 8"


def test_only_reading_opens_views(tmp_path: Path) -> None:
    publish(tmp_path, coloured({"train": {"fox": 2}}), name="birds")
    catalog = Catalog(tmp_path)
    with pytest.raises(UsageError, match="needs a whole version: birds@1"):
        catalog.open("birds@1?label == 'fox'")
    with pytest.raises(NotFoundError, match="no version '7'"):
        catalog.open_view("birds@7?label == 'fox'")
    assert catalog.open_view("birds@1").view is None


@pytest.mark.parametrize(
    ("text", "name", "versions", "again"),
    [
        ("photos", "photos", ["photos"], "photos"),
        ("photos@3?width > 8", "photos", ["photos@3"], "photos@3?width > 8"),
        ("photos?name == 'a;b'", "photos", ["photos"], "photos?name == 'a;b'"),
        ("photos@3;web@1 ; ", "photos+web", ["photos@3", "web@1"], "photos@3; web@1"),
        ("a@1?x == 'b; c@2'; d", "a+d", ["a@1", "d"], "a@1?x == 'b; c@2'; d"),
        ("a@1?x > 1; a@1?x < 1", "a", ["a@1"], "a@1?x > 1; a@1?x < 1"),
        ("a@1; train+=b@2", "a", ["a@1", "b@2"], "a@1; train += b@2"),
        ('a; classes = {"x; y": "z"}; b', "a+b", ["a", "b"], 'a; b; classes = {"x; y": "z"}'),
        ("a; b; without near-duplicates", "a+b", ["a", "b"], "a; b; without near-duplicates"),
        ("a; missing classes are ignored; b", "a+b", ["a", "b"], "a; b; missing classes are ignored"),
        ("; ".join(f"d{n}" for n in range(40)), "d0+39-222d23c1", [f"d{n}" for n in range(40)], None),
    ],
)
def test_references_are_cut_apart(text: str, name: str, versions: list[str], again: str | None) -> None:
    found = parse_joined(text)
    assert (found.name, whole_versions(text)) == (name, versions)
    assert str(found) == (again or text)
    assert parse_joined(str(found)) == found


def test_long_names_differ_and_newest_versions_come_once() -> None:
    """40 data sets, of which one differs; and two versions of one."""
    texts = ["; ".join(f"{'x' if n == other else 'd'}{n}" for n in range(40)) for other in (38, 39)]
    one, another = (parse_joined(text).name for text in texts)
    assert one != another
    assert parse_joined("a@1; a@2").series == "a; a"
    newest = parse_joined("a@1; a@2; without near-duplicates; missing classes are absent").newest
    assert str(newest) == "a"
    assert str(parse_joined("a@1; b@3; train += a@2; without near-duplicates").newest) == (
        "a; b; without near-duplicates"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "''"),
        (" ; ", "begins with no data set"),
        ("train += a; b", "begins with no data set"),
        ("a; classes = {x}", "cannot be read"),
        ('a; classes = {"x": 3}', "a name for a name"),
        ("a; b@", "no version after the @"),
        ("a; without near-duplicates", "names one data set"),
        ("a; missing classes are absent", "names one data set"),
    ],
)
def test_what_cannot_be_cut_apart_is_refused(text: str, words: str) -> None:
    if not text:
        assert parse_joined(text).is_one, "what opens it refuses the empty name"
        return
    with pytest.raises(UsageError, match=words):
        parse_joined(text)
