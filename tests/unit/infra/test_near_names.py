"""The known name that is nearest to one that does not exist."""

from __future__ import annotations

import pytest

from shardmill.infra.near_names import near_miss, near_names


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("imagesize", ["batch_size", "image_size"], ["image_size"]),  # without signs
        ("Train", ["test", "train"], ["train"]),  # in another case
        ("epochs", ["epoch", "num_epochs"], ["epoch"]),  # one letter too many
        ("stats", ["starts", "statistics_of_pixels"], ["starts"]),
        ("val", ["value_of_all_things", "train"], ["value_of_all_things"]),  # an abbreviation
        ("equal", ["natural", "sqrt"], []),  # neither by letters nor by sense
        ("?!", ["!", "#"], ["!"]),  # signs alone
        ("", ["a"], []),
        ("café", ["CAFÉ", "cafe"], ["CAFÉ"]),
        ("a", [], []),
    ],
)
def test_the_nearest_name(name: str, known: list[str], near: list[str]) -> None:
    assert near_names(name, known) == near


def test_without_a_near_name_the_known_ones_are_listed() -> None:
    assert near_miss("zebra", ["cat", "dog"]) == "there are: cat, dog"
    assert near_miss("zebra", []) is None
