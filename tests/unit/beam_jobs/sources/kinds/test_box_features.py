"""Further columns of tables of boxes as features of their images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.beam_jobs.tables.features import features_of
from shardmill.infra.errors import ConfigError
from tests.unit.beam_jobs.sources.kinds.test_box_table import FILTERED, LOST, READ, configured, listed
from tests.unit.beam_jobs.sources.kinds.test_objects import objects, outcomes, with_images

FEATURES: dict[str, Any] = {"caption": "text of the ad", "price": {"dtype": "float"}}
HEADER = "path,label,xmin,ymin,xmax,ymax,text of the ad,price,tags"


def further(listing: Listing, *names: str) -> dict[str, tuple[Any, ...]]:
    """File -> its features, of the files that are read."""
    return {
        row["uri"]: tuple(row[f"feature:{name}"] for name in names)
        for row in listing.table.to_pylist()
        if row["status"] == READ
    }


def messages(listing: Listing) -> dict[str, str]:
    return {row["uri"]: row["message"] for row in listing.table.to_pylist()}


def write(folder: Path, *rows: str, name: str = "t.csv") -> None:
    (folder / name).write_text("\n".join([HEADER, *rows]) + "\n")


def test_the_rows_of_an_image_give_it_typed_features(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a,cat,1,2,3,4, red hat ,1.5,new;cheap",
        "b,,,,,,,,",
        "a,dog,5,6,7,8,red hat,1.50,new; cheap",
    )
    (tmp_path / "all.txt").write_text("a\nb\nlisted\n")
    features = FEATURES | {"tags": {"separator": ";"}}
    config = configured({"file": "t.csv", "image_list": "all.txt"}, {"features": features})
    listing = listed(tmp_path, config, "a.jpg", "b.jpg", "listed.jpg", "nobody.jpg")
    assert further(listing, "caption", "price", "tags") == {
        "a.jpg": ("red hat", 1.5, ["new", "cheap"]),
        "b.jpg": (None, None, None),
        "listed.jpg": (None, None, None),
    }
    assert objects(listing, "a.jpg")[1] == ["cat", "dog"]
    assert outcomes(listing)["nobody.jpg"] == (FILTERED, "not_in_table")
    found = {feature.name: (str(feature), feature.column) for feature in features_of(listing.table)}
    assert list(found)[-3:] == ["caption", "price", "tags"]
    assert found["caption"] == ("text", "text of the ad")
    assert (found["price"][0], found["tags"][0]) == ("float32", "text [any number]")


def test_an_image_whose_rows_differ_in_a_feature_is_quarantined(tmp_path: Path) -> None:
    long = "x" * 50
    write(
        tmp_path,
        "a,cat,1,2,3,4,hat,1,",
        "b,cat,1,2,3,4,hat,nan,",
        "a,cat,1,2,3,5,hat,1,",
        "b,cat,1,2,3,5,hat,nan,",
        "a,cat,1,2,3,6,hat,2,",
        "c,cat,1,2,3,4,,,",
        "c,cat,1,2,3,5,,,",
    )
    write(tmp_path, f"a,cat,1,2,3,7,{long},1,", f"c,cat,1,2,3,6,{long},,", name="u.csv")
    config = configured(["t.csv", "u.csv"], {"features": FEATURES})
    listing = listed(tmp_path, config, "a.jpg", "b.jpg", "c.jpg")
    found = outcomes(listing)
    assert found["a.jpg"] == found["c.jpg"] == (LOST, "contradicting_rows")
    assert found["b.jpg"] == (READ, None)
    said = messages(listing)
    assert said["a.jpg"] == "row 1 of t.csv: its price is 1.0, and 2.0 in row 5 of t.csv"
    assert said["c.jpg"] == f"row 6 of t.csv: its caption is unset, and {long[:40]}… in row 2 of u.csv"


def test_a_value_of_another_type_makes_the_rows_of_its_image_broken(tmp_path: Path) -> None:
    bad = ("a,cat,1,2,3,4,hat,cheap,", "b,cat,1,2,3,4,hat,1,", "b,cat,1,2,3,5,hat,cheap,")
    write(tmp_path, *bad, "c,cat,1,2,3,4,hat,1e3,")
    listing = listed(tmp_path, configured("t.csv", {"features": FEATURES}), "a.jpg", "b.jpg", "c.jpg")
    assert outcomes(listing) == {
        "t.csv": (FILTERED, "table"),
        "t.csv#row=1": (LOST, "broken_row"),
        "t.csv#row=2": (LOST, "broken_row"),
        "a.jpg": (FILTERED, "not_in_table"),
        "b.jpg": (FILTERED, "not_in_table"),
        "c.jpg": (READ, None),
    }
    words = "its price is 'cheap', not a number"
    assert messages(listing)["t.csv#row=1"] == f"row 1 of t.csv: {words}"
    assert messages(listing)["t.csv#row=2"] == f"row 2 of t.csv: {words}, in row 3 of t.csv"


IMAGES: list[dict[str, Any]] = [
    {"path": "a", "label": ["cat"], "box": [[1, 2, 3, 4]], "stars": 3, "words": ["x", "y"]},
    {"path": "b", "label": [], "box": [], "stars": None, "words": []},
    {"path": "a", "label": ["cat"], "box": [[1, 2, 3, 4]], "stars": 3, "words": ["x", "y"]},
    {"path": "c", "label": ["cat"], "box": [[1, 2, 3, 4]], "stars": 1, "words": None},
    {"path": "c", "label": ["cat"], "box": [[1, 2, 3, 4]], "stars": 2, "words": None},
]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_row_that_is_an_image_gives_its_own_features(tmp_path: Path, form: str) -> None:
    if form == "jsonl":
        (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in IMAGES))
    else:
        pq.write_table(pa.Table.from_pylist(IMAGES), tmp_path / "t.parquet")
    config = configured(f"t.{form}", {"box_columns": "box", "features": ["stars", "words"]})
    listing = listed(tmp_path, config, "a.jpg", "b.jpg", "c.jpg")
    assert further(listing, "stars", "words") == {"a.jpg": (3, ["x", "y"]), "b.jpg": (None, [])}
    assert [str(feature) for feature in features_of(listing.table)][-2:] == ["int64", "text [any number]"]
    found = outcomes(listing)
    assert found[f"t.{form}#row=3"] == (FILTERED, "repeated_row")
    assert found["c.jpg"] == found[f"t.{form}#row=5"] == (LOST, "contradicting_rows")


def test_columns_that_can_be_no_feature_are_refused_with_a_remedy(tmp_path: Path) -> None:
    row = {"path": "a", "label": "cat", "box": [1, 2, 3, 4], "odd": {"x": 1}}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    table: dict[str, Any] = {"box_columns": "box"}
    with pytest.raises(ConfigError, match=r"the feature 'odd' of the table t\.parquet holds struct"):
        listed(tmp_path, configured("t.parquet", {**table, "features": ["odd"]}), "a.jpg")
    with pytest.raises(ConfigError, match="no column 'Odd'") as caught:
        listed(tmp_path, configured("t.parquet", {**table, "features": ["Odd"]}), "a.jpg")
    assert caught.value.remedy == "did you mean --set source.columns.features.Odd=odd?"
    for name, value in (("1", 7), ("2", "seven")):
        line = {"path": name, "label": "cat", "box": [1, 2, 3, 4], "x": value}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(line))
    with pytest.raises(ConfigError, match="has several types in the tables") as caught:
        listed(tmp_path, configured(["1.jsonl", "2.jsonl"], {**table, "features": ["x"]}), "a.jpg")
    assert caught.value.remedy == "say one: --set source.columns.features.x.dtype=text"


@pytest.mark.parametrize(
    ("features", "fault"),
    [
        (["height"], "every record or index has"),
        (["labels"], "every record or index has"),
        (["objects/bbox"], "no name of a feature"),
        ({"objects": "things"}, "'objects' is the name of the boxes"),
        (["xmax"], "the column 'xmax' tells of objects"),
        ({"kind": "label"}, "the column 'label' tells of objects"),
        ({"crowd": {"column": "IsGroupOf"}}, "the column 'IsGroupOf' tells of objects"),
    ],
)
def test_names_and_columns_that_the_objects_have_are_refused(features: Any, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        configured("t.csv", {"crowd_column": "IsGroupOf", "features": features})


def test_tables_without_features_keep_the_digests_of_their_settings() -> None:
    assert "features" not in configured("t.csv", {}).source.effective()["objects"]["table"]
    asked = configured("t.csv", {"features": ["x"]}).source.effective()["objects"]["table"]["features"]
    assert asked["x"]["dtype"] == "auto"


def test_a_recognised_table_keeps_the_features_that_are_asked_for(tmp_path: Path) -> None:
    with_images(tmp_path / "photos", "a.jpg")
    write(tmp_path / "photos", "a,cat,1,2,3,4,hat,1,")
    columns = {"features": ["price"]}
    config = PrepareConfig.model_validate({"source": {"kind": "auto", "columns": columns}})
    places = {"source": str(tmp_path / "photos"), "root": str(tmp_path / "root")}
    source = settled(JobRequest(dataset="d", config=config, **places)).config.source
    assert (source.kind, list(source.columns.features)) == ("box_table", ["price"])
