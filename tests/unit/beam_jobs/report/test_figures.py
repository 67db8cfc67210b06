"""Each section of the report shows its part of a version that has something for all of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shardmill.beam_jobs.report import PAGE_AT_MOST_BYTES, make_report, write_report
from shardmill.beam_jobs.report.figures.groups import (
    GROUPS_SHOWN,
    LEAKS_SHOWN,
    MEMBERS_SHOWN,
    choose_groups,
    divided_keys,
)
from shardmill.beam_jobs.report.figures.inputs import LostInput, count_inputs
from shardmill.beam_jobs.report.figures.splits import split_figures
from shardmill.beam_jobs.report.figures.survey import survey_indexes, traits
from shardmill.beam_jobs.report.sections import SECTIONS
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.format.contract import (
    NEAR_DUPLICATES_SCHEMA,
    ChannelStatistics,
    LabelConflict,
    Leaks,
    Manifest,
    SplitStatistics,
)
from shardmill.infra.storage.filesystem import Storage
from tests.samples.datasets.versions import Made, VersionMaker, write_table
from tests.samples.pages.questions import Elements, section
from tests.samples.pages.reports import version_with_everything

HOSTILE = [
    "<script>document.title='pwned'</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><style>body{display:none}</style>",
    "{{ 7 * 7 }}{% raw %}",
    "-->",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return version_with_everything(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(made: Made) -> str:
    return make_report(made.storage, made.manifest)


def near_table(*groups: list[tuple[str, str, str | None]]) -> pa.Table:
    """NEAR_DUPLICATES_SCHEMA of groups of (id, label, split)."""
    rows = [
        {"group": members[0][0], "record_id": record_id, "uri": f"{record_id}.jpg", "label": label}
        | {"split": split, "perceptual_hash": 0, "distance": 1}
        for members in groups
        for record_id, label, split in members
    ]
    return pa.Table.from_pylist(rows, NEAR_DUPLICATES_SCHEMA)


TRAIN = "train"


@pytest.mark.parametrize(
    ("groups", "leaks", "conflicts"),
    [
        pytest.param([[("a", "x", TRAIN), ("b", "x", TRAIN)]], 0, 0, id="as it should be"),
        pytest.param([[("a", "x", TRAIN), ("b", "y", TRAIN)]], 0, 1, id="labels differ"),
        pytest.param([[("a", "x", TRAIN), ("b", "x", "test")]], 1, 0, id="splits differ"),
        pytest.param([[("a", "x", None), ("b", "x", "test")]], 1, 0, id="dropped for it"),
        pytest.param([[("a", "x", None), ("b", "y", "test")]], 1, 1, id="dropped, and labels differ"),
    ],
)
def test_leaks_and_conflicts_are_told_apart(
    groups: list[list[tuple[str, str, str | None]]], leaks: int, conflicts: int
) -> None:
    found = choose_groups(near_table(*groups))
    assert (found.num_leaks, found.num_conflicts) == (leaks, conflicts)
    assert (len(found.leaks), len(found.groups)) == (leaks, 1 - leaks)


def test_of_many_groups_the_conflicts_and_the_largest_are_shown() -> None:
    groups = [[(f"{g:04d}-{m}", "x", TRAIN) for m in range(2 + g % 9)] for g in range(300)]
    groups += [[(f"{g:04d}-{m}", "xy"[m], TRAIN) for m in range(2)] for g in range(900, 903)]
    groups += [[(f"{g:04d}-{m}", "x", (TRAIN, "test")[m]) for m in range(2)] for g in range(500, 600)]
    found = choose_groups(near_table(*groups))
    assert (found.num_groups, found.num_leaks, found.num_conflicts) == (403, 100, 3)
    assert (len(found.groups), len(found.leaks)) == (GROUPS_SHOWN, LEAKS_SHOWN)
    assert [group.is_conflict for group in found.groups[:4]] == [True, True, True, False]
    assert [group.num_members for group in found.groups[3:]] == [10] * (GROUPS_SHOWN - 3)


def test_of_a_large_group_every_label_and_split_has_a_member_in_sight() -> None:
    members: list[tuple[str, str, str | None]] = [(f"{n:05d}", "x", TRAIN) for n in range(9000)]
    members[7777] = ("07777", "y", TRAIN)
    members[8888] = ("08888", "x", "test")
    (group,) = choose_groups(near_table(members)).leaks
    assert (group.num_members, len(group.members)) == (9000, MEMBERS_SHOWN)
    assert {"07777", "08888"} < {member.record_id for member in group.members}


def test_a_leak_shows_both_sides_and_what_was_dropped(page: str) -> None:
    leaks = Elements(section(page, "leaks"))
    assert {"cat/00000.jpg", "cat/00001.jpg", "dropped.jpg"} < set(leaks.words.split())
    assert "drop-from-train: 1 record of train was left out" in leaks.text
    dropped = [image for image in leaks.of("img") if "dropped" in (image["alt"] or "")]
    assert len(dropped) == 1  # read from the source, since no shard holds it
    assert len(leaks.of("img")) == 3 + 4  # and two of each of the two groups by key


def test_groups_by_key_are_counted_by_split(made: Made) -> None:
    found = {key.key: key for key in divided_keys(made.storage, made.manifest)}
    assert set(found) == {"patient 0 plain", "patient 1 plain"}
    assert found["patient 0 plain"].counts == {"train": 1, "validation": 1}
    assert len(found["patient 0 plain"].record_ids["validation"]) == 1


def test_groups_by_key_are_not_looked_for_where_there_is_no_leak(made: Made) -> None:
    manifest = made.manifest.model_copy(update={"leaks": Leaks(), "shards": []})
    assert divided_keys(made.storage, manifest) == []


def test_groups_by_key_that_were_mended_are_told_of(made: Made) -> None:
    mended = {"leaks": Leaks(key_groups=7, dropped_from_train=9), "near_duplicates": None, "shards": []}
    page = make_report(made.storage, made.manifest.model_copy(update=mended | {"splits": {}}))
    text = Elements(section(page, "leaks")).words
    assert "9 records of train were left out" in text
    assert "7 groups by key would lie in several splits" in text


def test_a_version_that_a_purge_left_empty_has_a_page(tmp_path: Path) -> None:
    maker = VersionMaker(tmp_path)
    maker.add_lost("a/b.jpg", "a", "filtered", "purged", "its content was purged")
    made = maker.write()
    assert made.manifest.shards == []
    assert "0 records in 0 classes, 0 shards" in make_report(made.storage, made.manifest)


def test_the_navigation_names_every_section_that_has_something_to_show(page: str) -> None:
    links = [anchor["href"] for anchor in Elements(page.split("</nav>")[0]).of("a")]
    assert links == [f"#{section['id']}" for section in Elements(page).of("section")]
    assert set(links) == {
        f"#{section.name}" for section in SECTIONS if section.name not in ("objects", "quality")
    }


def test_near_duplicates_stand_side_by_side(page: str) -> None:
    near = Elements(section(page, "near-duplicates"))
    assert "2 labels" in near.text
    assert f"and {8 - MEMBERS_SHOWN} more" in near.text
    assert len(near.of("img")) == 2 + MEMBERS_SHOWN
    assert "differs by 0.3 %" in near.text


def test_what_changed_has_counts_and_pictures(page: str) -> None:
    since = Elements(section(page, "since"))
    text = since.words
    for words in ("15 records added", "6 removed", "1 relabelled", "cat → dog", "train → validation"):
        assert words in text
    assert "gone0 plain −2 2 → 0" in text
    assert len(since.of("img")) == 12 + 6 + 1 + 1
    assert "and 3 more" in text


def test_a_version_before_that_is_gone_is_no_error(tmp_path: Path) -> None:
    made = version_with_everything(tmp_path)
    made.storage.delete("manifests/000001.json")
    assert "can no longer be compared" in section(make_report(made.storage, made.manifest), "since")


def test_pictures_of_the_version_before_may_be_gone(tmp_path: Path) -> None:
    made = version_with_everything(tmp_path)
    for entry in made.storage.list_files("data/feed"):
        if ".tfrecord" in entry.path:
            made.storage.delete(entry.path)
    since = Elements(section(make_report(made.storage, made.manifest), "since"))
    assert len(since.of("img")) == 12 + 1 + 1
    assert since.text.count("no picture") == 6


def test_quarantine_shows_a_picture_or_what_the_file_begins_with(page: str) -> None:
    lost = Elements(section(page, "quarantine"))
    (picture,) = lost.of("img")
    assert picture["alt"] == "preview of half.jpg"
    assert "JPEG 320 × 240" in lost.words
    assert "PNG 60,000 × 60,000" in lost.words
    assert "3c 73 63 72 69 70 74 3e" in lost.text  # the text that calls itself a photograph


def test_figures_of_splits(made: Made, page: str) -> None:
    figures = split_figures(made.manifest)["train"]
    assert figures.colour == "#805d05"
    blue = figures.channels[2]
    assert (blue.start, blue.width * 255) == (0.0, pytest.approx(14.25))  # no band goes below black
    splits = Elements(section(page, "splits")).words
    assert "127.5 ± 73.9" in splits
    assert "bytes 700 B 812 B 1.0 KiB" in splits
    assert "Container gzip a sample of 64 records shrinks by 31 %" in splits


def test_grey_has_one_channel_and_a_grey_swatch(made: Made) -> None:
    grey = SplitStatistics(pixels=ChannelStatistics(num_pixels=9, mean=[16.0], std=[1.0]))
    manifest = made.manifest.model_copy(update={"statistics": {"train": grey, "test": SplitStatistics()}})
    figures = split_figures(manifest)
    assert list(figures) == ["train"]
    assert [channel.name for channel in figures["train"].channels] == ["grey"]
    assert figures["train"].colour == "#101010"


def test_kinds_of_sources_add_up(made: Made) -> None:
    found = {trait.title: trait for trait in traits(survey_indexes(made.storage, made.manifest, ()))}
    total = made.manifest.accounting.num_records
    assert [found[title].total for title in ("Format", "Colour", "Orientation (EXIF)")] == [total] * 3
    done = dict(found["What was done"].rows)
    assert done["salvaged: the file ends early"] == 1
    assert done["converted to sRGB"] == 8
    assert done["transparent, put on the background"] == 6


def test_findings_speak_of_leaks_and_of_what_was_done(page: str) -> None:
    accounting = Elements(section(page, "accounting")).words
    assert "2 groups have members in several splits; 1 record of train left out because of it." in accounting
    assert "1 record was salvaged from images that end early" in accounting
    assert "2 groups of images that look the same have different labels" in accounting


def test_every_picture_has_a_text_and_headings_go_down_one_by_one(page: str) -> None:
    elements = Elements(page)
    assert all((image.get("alt") or "").strip() for image in elements.of("img"))
    for drawing in elements.of("svg"):
        is_part = not {"role", "aria-hidden"} & set(drawing)
        assert is_part or drawing.get("aria-hidden") or (drawing.get("aria-label") or "").strip()
    levels = [int(tag[1]) for tag, _ in elements.found if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_name_becomes_markup_in_any_section(tmp_path: Path, hostile: str) -> None:
    calm = Elements(make_report(*_parts(version_with_everything(_folder(tmp_path / "calm")))))
    made = version_with_everything(_folder(tmp_path / "hostile"), hostile=hostile)
    page = make_report(*_parts(made))
    elements = Elements(page)
    tags = [tag for tag, _ in elements.found]
    assert tags.count("img") == len(calm.of("img"))
    assert set(tags) == {tag for tag, _ in calm.found}
    assert {name for _, attributes in elements.found for name in attributes} == {
        name for _, attributes in calm.found for name in attributes
    }
    for name in ("since", "classes", "splits", "sources", "leaks", "quarantine"):
        assert hostile in Elements(section(page, name)).text, name


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _parts(made: Made) -> tuple[Storage, Manifest]:
    return made.storage, made.manifest


def test_a_later_version_of_the_same_plan_leaves_the_earlier_page(tmp_path: Path) -> None:
    maker = VersionMaker(tmp_path)
    maker.add_class("cat", 12)
    made = maker.write()
    first = write_report(made.storage, made.manifest, made.inputs)
    Catalog(tmp_path).publish(made.manifest.model_copy(update={"report": first}))
    third = made.manifest.model_copy(update={"version": 3, "parent": None})
    assert write_report(made.storage, third, made.inputs) == "data/feed/report-000003.html"
    assert b"sample</title>" not in made.storage.read_bytes(first)
    assert b"<title>sample@1" in made.storage.read_bytes(first)
    assert write_report(made.storage, third) == "data/feed/report-000003.html"


def test_the_page_of_an_unpublished_attempt_is_replaced(tmp_path: Path) -> None:
    maker = VersionMaker(tmp_path)
    maker.add_class("cat", 12)
    made = maker.write()
    write_report(made.storage, made.manifest)
    second = made.manifest.model_copy(update={"version": 2})
    assert write_report(made.storage, second) == "data/feed/report.html"


def test_the_page_is_the_same_whether_inputs_are_at_hand_or_read(made: Made) -> None:
    at_hand = make_report(made.storage, made.manifest, made.inputs)
    assert at_hand == make_report(made.storage, made.manifest)


def test_counts_do_not_depend_on_how_inputs_are_cut(made: Made) -> None:
    whole = count_inputs([made.inputs], made.manifest, {"half.jpg"})
    parts = [made.inputs.slice(at, 7) for at in range(0, made.inputs.num_rows, 7)]
    assert count_inputs(parts[::-1], made.manifest, {"half.jpg"}) == whole
    assert [type(found) for found in whole.wanted] == [LostInput]


def test_the_page_stays_small_whatever_is_in_the_version(tmp_path: Path) -> None:
    """Every list longer than is shown, every name long and full of what is escaped, every picture noise."""
    long = "&<'\"\u202e" * 100
    chance = np.random.default_rng(3)
    maker = VersionMaker(tmp_path, picture=lambda _, __: chance.integers(0, 256, (112, 150, 3)))
    for number in range(1300):
        maker.add_class(f"{number:04d}{long}", 2)
    for number in range(100):
        maker.add_duplicate(f"{long}{number}", f"{number:04d}{long}", of=number)
        for at in range(30):
            maker.add_lost(f"{long}{number}.{at}", None, "quarantined", f"{number:03d}{long}", long)
            maker.add_lost(f"{long}{number}-{at}", None, "filtered", f"{number:03d}{long}", long)
    made = maker.write()
    records = made.inputs.filter(pc.equal(made.inputs["outcome"], "record")).to_pylist()
    groups = [
        [(row["record_id"], f"{at}{long}", ("train", "test")[number % 2 and at % 2]) for at, row in members]
        for number in range(200)
        for members in [list(enumerate(records[9 * number : 9 * number + 9]))]
    ]
    near = write_table(made.storage, "data/feed/near.parquet", near_table(*groups))
    conflicts = [LabelConflict(sha256="f" * 64, uris=[long] * 20, labels=[long] * 20)] * 100
    changed = {"label_conflicts": conflicts, "config": {long: long}, "near_duplicates": near}
    page = make_report(made.storage, made.manifest.model_copy(update=changed)).encode()
    assert PAGE_AT_MOST_BYTES / 2 < len(page) < PAGE_AT_MOST_BYTES
