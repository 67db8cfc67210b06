"""Queries over an index: what they select, in memory and by a scan, and what they refuse in words."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.views.view import view_of
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.format.contract import Manifest
from tests.samples.datasets.published import coloured, publish

CLASSES = ["coat", "hat", "it's"]
TABLE = pa.table(
    {
        "id": pa.array(list("abcdef")),
        "label": pa.array([0, 1, 1, 2, 0, None], pa.int32()),
        "width": pa.array([100, 200, None, 400, 500, 600], pa.int32()),
        "height": pa.array([100, 100, 100, 100, 1000, 100], pa.int32()),
        "sharpness": pa.array([0.5, 1.5, 2.5, None, float("nan"), 3.5]),
        "source_uri": ["hat/A.jpg", "hat/b.PNG", None, "x%y/c", "é/d.jpg", "e.jpg"],
        "salvaged": [True, False, None, False, False, True],
        "tags": [["new", "red"], ["red"], [], None, ["redder"], ["a|b"]],
        "numbers": pa.array([[1, 2], [12], [], None, [2], [21]], pa.list_(pa.int32())),
        "taken": pa.array(
            [datetime.datetime(2024, 5, day) for day in range(1, 6)] + [None], pa.timestamp("us")
        ),
        "camera model": pa.array(["K1", "K1", "K2", None, "K2", "K1"]).dictionary_encode(),
    }
)

CASES = [
    ("label == 'hat'", "bc"),
    ("label != 'hat'", "ade"),
    ("label == 1", "bc"),
    ("label_name in ('coat', \"it's\")", "ade"),
    ("startswith(label, 'c') or label == 'hat' and width > 100", "abe"),
    ("width > 200", "def"),
    ("not width > 200", "ab"),
    ("100 < width <= 400", "bd"),
    ("width is None", "c"),
    ("width is not None and label is None", "f"),
    ("width in (100, 500.0)", "ae"),
    ("width not in [100, 500]", "bdf"),
    ("width in (100,)", "a"),
    ("width * height >= 100 * 500", "ef"),
    ("width / height == 0.5", "e"),
    ("-width < -400", "ef"),
    ("400 < 2 * width - 1 and 600 >= width", "def"),
    ("sharpness > 1.5", "cf"),
    ("sharpness in (1.5, 2.5)", "bc"),
    ("salvaged", "af"),
    ("not salvaged", "bde"),
    ("salvaged == False", "bde"),
    ("'hat/' in source_uri", "ab"),
    ("'hat/' not in source_uri", "def"),
    ("endswith(lower(source_uri), '.jpg')", "aef"),
    ("matches(source_uri, '^[a-z]+/')", "ab"),
    ("len(source_uri) == 5", "df"),
    ("len(tags) > 1 and 'red' in tags", "a"),
    ("'red' in tags", "ab"),
    ("'a|b' in tags", "f"),
    ("'' in tags", ""),
    ("2 in numbers", "ae"),
    ("taken >= '2024-05-03'", "cde"),
    ("taken in ('2024-05-03', '2024-05-01 00:00:00')", "ac"),
    ("column('camera model') == 'K2'", "ce"),
    ("split == 'train'", "abcdef"),
    ("split in ('validation', 'test')", ""),
    ("(salvaged or label == 'hat') and not (width is None)", "abf"),
]


@pytest.mark.parametrize(("query", "ids"), CASES)
def test_a_query_selects_the_same_records_in_memory_and_in_a_scan(query: str, ids: str) -> None:
    view = view_of(query, TABLE.schema, CLASSES)
    kept = view.select(TABLE, "train", CLASSES)
    assert "".join(kept["id"].to_pylist()) == ids
    scanned = TABLE.append_column("split", pa.repeat("train", TABLE.num_rows))
    found = pads.dataset(scanned).to_table(filter=view.expression(TABLE.schema, CLASSES))
    assert "".join(found["id"].to_pylist()) == ids


def test_blanks_quotes_and_parentheses_do_not_make_another_view() -> None:
    queries = ["label=='hat' and width>8", ' ((label == "hat")  and (width > 8)) ']
    assert len({view_of(query.strip(), TABLE.schema, CLASSES).query for query in queries}) == 1


def test_a_view_reads_only_the_columns_that_it_names() -> None:
    view = view_of("label == 'hat' and 2 * width > 8 and split == 'test'", TABLE.schema, CLASSES)
    assert view.fields.names == ["label", "width"]


def test_a_column_that_an_older_shard_lacks_has_missing_values() -> None:
    view = view_of("width is None or width > 5", TABLE.schema, CLASSES)
    older = TABLE.drop_columns(["width"])
    assert view.select(older, "train", CLASSES)["id"] == older["id"]
    assert view_of("width > 5", TABLE.schema, CLASSES).select(older, "train", CLASSES).num_rows == 0


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("widht > 3", "'width'"),
        ("label == hat", "write 'hat' in quotes"),
        ("label == 'hats'", "did you mean 'hat'?"),
        ("label_name in ('hat', 'cost')", "did you mean 'coat'?"),
        ("label = 'hat'", "compare with =="),
        ("label == 'hat", "cannot be read"),
        ("width == '800'", "'width' is a number and \"'800'\" is text"),
        ("source_uri > 3", "compare values of the same kind"),
        ("width", "compare it with something"),
        ("width > 3 and 1", "no condition"),
        ("1 < 2", "name a column"),
        ("source_uri + 'x' == 'y'", "only numbers can be calculated with"),
        ("width == None", "x is None"),
        ("width is 3", "asks only for None"),
        ("'a' in width", "cannot be in 'width'"),
        ("3 in tags", "cannot be in 'tags'"),
        ("tags == 'red'", "is a list"),
        ("width in ()", "empty list"),
        ("width in (height, 3)", "name values only"),
        ("width == (1, 2)", "can only follow 'in'"),
        ("width ** 2 > 4", "cannot contain"),
        ("width > 1 if salvaged else 2", "cannot contain"),
        ("__import__('os').system('true')", "no function"),
        ("source_uri.startswith('a')", "no function 'source_uri.startswith'"),
        ("startwith(source_uri, 'a')", "did you mean 'startswith'?"),
        ("startswith(source_uri)", "takes 2 arguments, not 1"),
        ("startswith(source_uri, width)", "give a text in quotes"),
        ("startswith(width, '1')", "no column of texts"),
        ("len(x=tags) > 1", "in order"),
        ("matches(source_uri, '[')", "cannot be computed"),
        ("taken > 'yesterday'", "2024-05-01"),
        ("[x for x in tags]", "cannot contain"),
        ("width > 99999999999999999999", "no value"),
        ("(" * 300 + "width" + ")" * 300 + " > 1", "cannot be read"),
        ("width > 1 or " * 2000 + "salvaged", "10,000 are allowed"),
        ("", "cannot be read"),
    ],
)
def test_what_a_query_cannot_say_is_refused_in_words(query: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        view_of(query, TABLE.schema, CLASSES)
    assert words in str(caught.value)


def test_without_classes_a_label_is_only_a_number() -> None:
    assert view_of("label == 1", TABLE.schema, []).fields.names == ["label"]
    with pytest.raises(UsageError, match="has no classes"):
        view_of("label == 'hat'", TABLE.schema, [])


def test_a_scan_has_split_class_name_and_every_column_of_the_index(tmp_path: Path) -> None:
    pictures = coloured({"train": {"fox": 5, "owl": 4}, "test": {"owl": 2}})
    version = publish(tmp_path, pictures, name="birds")
    table = version.scan().to_table()
    assert table.column_names[:2] == ["split", "label_name"]
    expected = [
        (shard.split, row["id"], version.manifest.classes[row["label"]])
        for shard in version.manifest.shards
        for row in version.index(shard).to_pylist()
    ]
    columns = [table[name].to_pylist() for name in ("split", "id", "label_name")]
    assert list(zip(*columns, strict=True)) == expected
    assert version.scan(["width"]).head(3).column_names == ["width"]
    owls = version.query("label == 'owl'")
    assert owls.scan(["label_name", "split"]).to_table().to_pylist() == (
        [{"label_name": "owl", "split": "train"}] * 4 + [{"label_name": "owl", "split": "test"}] * 2
    )
    assert owls.query("split == 'test'").scan().count_rows() == 2
    with pytest.raises(NotFoundError, match="did you mean 'width'"):
        version.scan(["widht"])


def test_a_view_counts_its_records_and_has_a_digest(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"fox": 5, "owl": 4}, "test": {"owl": 2}}), name="birds")
    owls = Catalog(tmp_path).open_view("birds?label%20==%20'owl'")
    assert owls.ref == "birds@1?label == 'owl'"
    assert Catalog(tmp_path).open_view(owls.ref).view == owls.view
    assert (owls.num_examples("train"), owls.num_examples("test"), owls.num_examples("none")) == (4, 2, 0)
    assert owls.count_classes("train") == {"owl": 4}
    assert version.count_classes("train") == {"fox": 5, "owl": 4}
    foxes = version.query("label == 'fox'")
    assert version.view_digest is None
    assert len({owls.view_digest, foxes.view_digest}) == 2
    fewer = Manifest(**dict(version.manifest) | {"classes": ["owl", "fox"]})
    assert type(version)(version.storage, fewer, owls.view).view_digest != owls.view_digest


def test_several_labels_an_image_are_asked_for_by_name_and_number() -> None:
    table = pa.table(
        {
            "id": pa.array(list("abc")),
            "label": pa.array([-1, -1, 1], pa.int32()),
            "labels": pa.array([[0, 1], [], [12]], pa.list_(pa.int64())),
        }
    )
    for query, ids in [("'hat' in labels", "a"), ("1 in labels", "a"), ("label == 1", "c")]:
        view = view_of(query, table.schema, CLASSES)
        assert "".join(view.select(table, "train", CLASSES)["id"].to_pylist()) == ids
        scanned = pads.dataset(table).to_table(filter=view.expression(table.schema, CLASSES))
        assert "".join(scanned["id"].to_pylist()) == ids
    with pytest.raises(UsageError, match="did you mean 'hat'"):
        view_of("'hats' in labels", table.schema, CLASSES)
