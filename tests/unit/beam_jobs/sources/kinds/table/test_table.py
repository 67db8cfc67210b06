"""Images that a table names: every row and every file has its row in the listing, with its reason."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import LISTING_SCHEMA
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.errors import ConfigError, NotFoundError
from tests.samples.images.photos import write
from tests.samples.sources.columns import with_columns
from tests.samples.stores.object_store import KEY, SECRET, serve

Rows = dict[str, tuple[str | None, str | None]]


def listed(root: Path, file: str = "labels.csv", **table: Any) -> Listing:
    config = {"source": {"kind": "table", **with_columns("table", {"file": file, **table})}}
    return list_inputs(SourceFolder(str(root)), PrepareConfig.model_validate(config))


def column(listing: Listing, name: str) -> dict[str, Any]:
    """URI -> value."""
    return dict(zip(listing.table["uri"].to_pylist(), listing.table[name].to_pylist(), strict=True))


def outcomes(listing: Listing) -> Rows:
    """URI -> (label, reason)."""
    labels, reasons = column(listing, "label"), column(listing, "reason")
    return {uri: (label, reasons[uri]) for uri, label in labels.items()}


def source(root: Path, table: str | bytes, *images: str, name: str = "labels.csv") -> Path:
    data = table if isinstance(table, bytes) else table.encode()
    return write(root, {name: data, **dict.fromkeys(images, b"x")})


def test_every_row_and_every_file_is_accounted_for(tmp_path: Path) -> None:
    table = """path,label
a.jpg,hat
b.jpg,Not sure
c.jpg,
gone.jpg,hat
a.jpg,hat
d.jpg,hat
d.jpg,shirt
,hat
../secret.jpg,hat
/etc/passwd,hat
s3://bucket/e.jpg,hat
f.jpg,Not sure
f.jpg,shirt
notes.txt,hat
one,two,three
"""
    images = ("a.jpg", "b.jpg", "c.jpg", "d.jpg", "f.jpg", "nobody.jpg", "notes.txt")
    listing = listed(source(tmp_path, table, *images), drop_labels=["Not sure"])
    assert listing.table.schema == LISTING_SCHEMA
    assert outcomes(listing) == {
        "a.jpg": ("hat", None),
        "b.jpg": ("Not sure", "dropped_label"),
        "c.jpg": (None, "no_label"),
        "d.jpg": ("hat", "contradicting_rows"),
        "f.jpg": ("shirt", None),
        "labels.csv": (None, "table"),
        "labels.csv#row=10": ("hat", "bad_path"),
        "labels.csv#row=11": ("hat", "bad_path"),
        "labels.csv#row=12": ("Not sure", "dropped_label"),
        "labels.csv#row=15": (None, "broken_row"),
        "labels.csv#row=4": ("hat", "missing_file"),
        "labels.csv#row=5": ("hat", "repeated_row"),
        "labels.csv#row=7": ("shirt", "contradicting_rows"),
        "labels.csv#row=8": ("hat", "bad_path"),
        "labels.csv#row=9": ("hat", "bad_path"),
        "nobody.jpg": (None, "not_in_table"),
        "notes.txt": ("hat", "ignored"),
    }
    uris = listing.table["uri"].to_pylist()
    assert uris == sorted(uris, key=str.encode)
    messages = column(listing, "message")
    assert messages["labels.csv#row=4"] == "row 4 of labels.csv: there is no file gone.jpg"
    assert messages["labels.csv#row=15"] == (
        "row 15 of labels.csv: it has 3 values, the header 2: 'one,two,three'"
    )
    assert messages["d.jpg"] == (
        "row 6 of labels.csv: it says hat, contradicted by row 7 of labels.csv (shirt)"
    )
    assert messages["labels.csv#row=7"] == (
        "row 7 of labels.csv: it says shirt and contradicts row 6 of labels.csv (hat)"
    )
    assert listing.to_read()["uri"].to_pylist() == ["a.jpg", "f.jpg"]


def test_splits_and_groups(tmp_path: Path) -> None:
    table = "file,class,part,who\n1.jpg,a,TRAIN,p\n2.jpg,a,val,\n3.jpg,a,,p\n4.jpg,b,holdout,q\n4.jpg,b,,q\n"
    images = (f"{number}.jpg" for number in range(1, 5))
    names = {"image": "file", "label": "class", "split": "part", "group": "who"}
    listing = listed(source(tmp_path, table, *images), **names)
    splits, groups, reasons = (column(listing, name) for name in ("split", "group", "reason"))
    assert [splits[f"{n}.jpg"] for n in range(1, 5)] == ["train", "validation", None, None]
    assert [groups[f"{n}.jpg"] for n in range(1, 5)] == ["p", None, "p", "q"]
    assert reasons["labels.csv#row=4"] == "unknown_split"
    assert "holdout" in column(listing, "message")["labels.csv#row=4"]
    assert reasons["4.jpg"] is None


@pytest.mark.parametrize(
    ("labels", "table", "first", "second"),
    [
        ("mask", "path,mask\n1.jpg,m/1.png\n1.jpg,m/2.png\n", "m/1.png", "m/2.png"),
        ("multi", "path,label\n1.jpg,hat;tie\n1.jpg,tie\n", "hat, tie", "tie"),
        ("targets", "path,age\n1.jpg,3\n1.jpg,4.5\n", "3", "4.5"),
        ("none", "path,split\n1.jpg,train\n1.jpg,test\n", "nothing, split train", "nothing, split test"),
    ],
)
def test_contradictions_say_what_each_row_says(
    labels: str, table: str, first: str, second: str, tmp_path: Path
) -> None:
    settings: dict[str, dict[str, Any]] = {
        "mask": {"mask": "mask"},
        "multi": {"label_separator": ";"},
        "targets": {"target_columns": ["age"]},
        "none": {"split": "split"},
    }
    root = source(tmp_path, table, "1.jpg", "2.jpg", "m/1.png", "m/2.png")
    config = {"kind": "table", "labels": labels, "table": {"file": "labels.csv"}, "columns": settings[labels]}
    if labels == "mask":
        config["masks"] = {"classes": {"a": 0, "b": 1}}
    listing = list_inputs(SourceFolder(str(root)), PrepareConfig.model_validate({"source": config}))
    messages = column(listing, "message")
    assert messages["1.jpg"] == (
        f"row 1 of labels.csv: it says {first}, contradicted by row 2 of labels.csv ({second})"
    )
    assert messages["labels.csv#row=2"] == (
        f"row 2 of labels.csv: it says {second} and contradicts row 1 of labels.csv ({first})"
    )


def test_rows_that_differ_in_split_alone_contradict_each_other(tmp_path: Path) -> None:
    table = "path,label,split\n1.jpg,a,train\n1.jpg,a,test\n"
    listing = listed(source(tmp_path, table, "1.jpg"), split="split")
    assert [reason for _, reason in outcomes(listing).values()] == [
        "contradicting_rows", "table", "contradicting_rows",
    ]  # fmt: skip


def test_bare_ids_are_found_by_their_stem(tmp_path: Path) -> None:
    table = "image,label\n7f3a,hat\n0012,shirt\n3,hat\n4.v2,hat\n5,hat\n"
    images = (
        "images/7f3a.jpg", "images/0012.png", "images/0012.txt", "images/3.jpg", "images/3.png",
        "images/4.v2.jpg", "5.jpg",
    )  # fmt: skip
    listing = listed(source(tmp_path, table, *images), image="image", prefix="/images/")
    assert outcomes(listing) == {
        "5.jpg": (None, "not_in_table"),
        "images/0012.png": ("shirt", None),
        "images/0012.txt": (None, "ignored"),
        "images/3.jpg": (None, "not_in_table"),
        "images/3.png": (None, "not_in_table"),
        "images/4.v2.jpg": ("hat", None),
        "images/7f3a.jpg": ("hat", None),
        "labels.csv": (None, "table"),
        "labels.csv#row=3": ("hat", "several_files"),
        "labels.csv#row=5": ("hat", "missing_file"),
    }


def test_the_ways_to_write_one_path(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    paths = ["./a/b.jpg", "a//b.jpg", "a/./b.jpg", f"{tmp_path}/s/a/b.jpg", " a/b.jpg "]
    table = "path,label\n" + "".join(f"{path},hat\n" for path in paths)
    found = outcomes(listed(source(tmp_path / "s", table, "a/b.jpg")))
    assert found.pop("a/b.jpg") == ("hat", None)
    del found["labels.csv"]
    assert [reason for _, reason in found.values()] == ["repeated_row"] * 4


def test_labels_are_merged_and_dropped_and_typing_errors_are_told(tmp_path: Path) -> None:
    table = "path,label\n1.jpg,T-Shirt\n1.jpg,Tee\n2.jpg,Skip\n"
    merge = {"T-Shirt": "top", "Tee": "top", "Polo": "top"}
    listing = listed(
        source(tmp_path, table, "1.jpg", "2.jpg"), merge_labels=merge, drop_labels=["Skip", "skip "]
    )
    assert outcomes(listing) == {
        "1.jpg": ("top", None),
        "2.jpg": ("Skip", "dropped_label"),
        "labels.csv": (None, "table"),
        "labels.csv#row=2": ("top", "repeated_row"),
    }
    assert listing.warnings == [
        "source.columns.drop_labels names 'skip ', which is the label of no row; did you mean 'Skip'?",
        "source.columns.merge_labels names 'Polo', which is the label of no row",
        "the table has a single class, 'top'",
    ]


def test_the_class_filter_sees_merged_names(tmp_path: Path) -> None:
    root = source(tmp_path, "path,label\n1.jpg,a\n2.jpg,b\n3.jpg,c\n", "1.jpg", "2.jpg", "3.jpg")
    table = {"file": "labels.csv"}
    columns = {"merge_labels": {"a": "b"}}
    config = {"source": {"kind": "table", "table": table, "columns": columns}, "filter": {"classes": ["b"]}}
    listing = list_inputs(SourceFolder(str(root)), PrepareConfig.model_validate(config))
    assert outcomes(listing)["3.jpg"] == ("c", "class")
    assert listing.to_read()["uri"].to_pylist() == ["1.jpg", "2.jpg"]
    config["filter"]["classes"] = ["d"]
    with pytest.raises(ConfigError, match="no class of the source"):
        list_inputs(SourceFolder(str(root)), PrepareConfig.model_validate(config))


def test_several_tables_by_a_pattern(tmp_path: Path) -> None:
    tables = {"t/x.csv": b"path,label\n1.jpg,a\n", "t/y.csv": b"label;path\nb;1.jpg\nb;2.jpg\n"}
    write(tmp_path, {**tables, "t/deep/z.csv": b"no table", "1.jpg": b"x", "2.jpg": b"x"})
    found = outcomes(listed(tmp_path, "t/*.csv"))
    assert found["1.jpg"] == ("a", "contradicting_rows")
    assert found["t/y.csv#row=1"] == ("b", "contradicting_rows")
    assert found["2.jpg"] == ("b", None)
    assert [found[uri][1] for uri in ("t/x.csv", "t/y.csv", "t/deep/z.csv")] == ["table", "table", "ignored"]


def test_a_table_outside_of_the_source(tmp_path: Path) -> None:
    source(tmp_path / "elsewhere", "path,label\n1.jpg,a\n2.jpg,a\n", name="my labels.csv")
    write(tmp_path / "photos", {"1.jpg": b"x"})
    for file in (f"{tmp_path}/elsewhere/my labels.csv", f"{tmp_path}/else*/my*.csv"):
        found = outcomes(listed(tmp_path / "photos", file))
        assert found["1.jpg"] == ("a", None)
        assert found[f"{tmp_path}/elsewhere/my labels.csv#row=2"] == ("a", "missing_file")


def test_a_row_never_takes_the_uri_of_a_file(tmp_path: Path) -> None:
    listing = listed(source(tmp_path, "path,label\nlabels.csv#row=2,a\n2.jpg,a\n", "labels.csv#row=2"))
    assert outcomes(listing) == {
        "labels.csv": (None, "table"),
        "labels.csv##row=2": ("a", "missing_file"),
        "labels.csv#row=2": ("a", None),
    }


@pytest.mark.parametrize(
    ("file", "says"),
    [("nowhere.csv", "no table .*nowhere.csv"), ("*.tsv", "no table"), ("none/*.csv", "no table")],
)
def test_a_table_that_is_not_there(file: str, says: str, tmp_path: Path) -> None:
    write(tmp_path, {"1.jpg": b"x"})
    with pytest.raises(NotFoundError, match=says):
        listed(tmp_path, file)


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("1", "did you mean --set source.table.prefix=in/images?"),
        ("./images/1.jpg", "did you mean --set source.table.prefix=in?"),
        ("2.jpg", "look at source.columns.image and source.table.prefix"),
        (r"images\1.jpg", "did you mean --set source.table.prefix=in?"),
        ("/data/in/images/1.jpg", "look at source.columns.image"),
        ("", "look at source.columns.image"),
    ],
)
def test_a_table_whose_paths_begin_elsewhere(path: str, remedy: str, tmp_path: Path) -> None:
    root = source(tmp_path, f"path,label\n{path},a\n", "in/images/1.jpg")
    with pytest.raises(
        NotFoundError, match="no row of the table names a file of the source; row 1 of"
    ) as caught:
        listed(root)
    assert remedy in str(caught.value.remedy)


def test_names_in_another_spelling(tmp_path: Path) -> None:
    """A Mac writes é as e and an accent; programs of Windows write backslashes between folders."""
    composed, decomposed = (unicodedata.normalize(form, "é{}.png") for form in ("NFC", "NFD"))
    files = [decomposed.format(1), composed.format(2), decomposed.format(3), "in/4.png", "Five.PNG"]
    files += [decomposed.format(6), composed.format(6)]
    paths = [composed.format(1), decomposed.format(2), composed.format(3)[:-4], r"in\4.png", "five.png"]
    paths += [composed.format(6)]
    table = "path,label\n" + "".join(f"{path},{at}\n" for at, path in enumerate(paths))
    listing = listed(source(tmp_path, table, *files))
    found = outcomes(listing)
    labels = {name: label for name, (label, reason) in found.items() if reason is None}
    assert labels == {
        decomposed.format(1): "0", composed.format(2): "1", decomposed.format(3): "2", "in/4.png": "3",
        composed.format(6): "5",
    }  # fmt: skip
    assert found["labels.csv#row=5"] == ("4", "missing_file")
    (message,) = (row["message"] for row in listing.table.to_pylist() if row["reason"] == "missing_file")
    assert message == "row 5 of labels.csv: there is no file five.png; there is Five.PNG"


def test_a_name_that_two_files_have_in_another_spelling(tmp_path: Path) -> None:
    """U+212B and U+0041 U+030A are the same letter, and so is U+00C5, which no file has."""
    table = "path,label\n\u00c5.png,a\nother.png,b\n"
    found = outcomes(listed(source(tmp_path, table, "\u212b.png", "A\u030a.png", "other.png")))
    assert found["labels.csv#row=1"] == ("a", "several_files")


def test_a_table_whose_values_are_all_wrong_names_their_settings(tmp_path: Path) -> None:
    root = source(tmp_path, "path,label,kids\n1.jpg,a,some\n", "1.jpg")
    with pytest.raises(NotFoundError, match="its kids is 'some', not a whole number") as caught:
        listed(root, features={"kids": {"dtype": "int64"}})
    assert "features" in str(caught.value.remedy)


def test_a_folder_in_place_of_the_table(tmp_path: Path) -> None:
    write(tmp_path, {"labels.csv/1.jpg": b"x"})
    with pytest.raises(NotFoundError, match=r"no table .*labels.csv"):
        listed(tmp_path)


def test_a_label_that_swallowed_the_next_rows_is_a_broken_row(tmp_path: Path) -> None:
    table = 'path,label\n1.jpg,"hat\n2.jpg,hat\n3.jpg,"hat"\n4.jpg,hat\n'
    found = outcomes(listed(source(tmp_path, table, "1.jpg", "2.jpg", "3.jpg", "4.jpg")))
    assert found["1.jpg"][1] == "broken_row"
    assert [found[f"{number}.jpg"][1] for number in (2, 3, 4)] == ["not_in_table", "not_in_table", None]


def test_a_table_of_an_unknown_kind(tmp_path: Path) -> None:
    root = source(tmp_path, "path,label\n1.jpg,a\n", "1.jpg", name="labels.xlsx")
    with pytest.raises(ConfigError, match="does not tell its format") as caught:
        listed(root, "labels.xlsx")
    assert "source.table.format" in str(caught.value.remedy)
    assert outcomes(listed(root, "labels.xlsx", format="csv"))["1.jpg"] == ("a", None)


@pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl", "labels.parquet"])
def test_the_digest_changes_with_a_label(name: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def digest(label: str) -> str:
        if name.endswith("csv"):
            source(tmp_path, f"path,label\n1.jpg,{label}\n", "1.jpg")
        elif name.endswith("jsonl"):
            source(tmp_path, f'{{"path": "1.jpg", "label": "{label}"}}\n', "1.jpg", name=name)
        else:
            pq.write_table(pa.table({"path": ["1.jpg"], "label": [label]}), tmp_path / name)
        outside = write(tmp_path / "photos", {})
        outside.mkdir(exist_ok=True)
        if not (outside / "1.jpg").exists():
            (outside / "1.jpg").write_bytes(b"x")
        return listed(outside, str(tmp_path / name)).digest()

    assert digest("a") != digest("b")
    assert digest("a") == digest("a")


def test_source_and_table_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "EC2_METADATA_DISABLED": "true"}
    for name, value in credentials.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    table = "path,label\nimages/1.jpg,a\n2,b\ns3://photos/in/images/3.jpg,b\ns3://photos/2.jpg,b\n"
    source(tmp_path, table, "images/1.jpg", "2.jpg", "images/3.jpg")
    with serve("photos") as store:
        store.upload(tmp_path, "in")
        for file in ("labels.csv", "*.csv", store.location("in/labels.csv"), store.location("i*/labels.csv")):
            config = {"source": {"kind": "table", "table": {"file": file}}}
            folder = SourceFolder(store.location("in"))
            assert outcomes(list_inputs(folder, PrepareConfig.model_validate(config))) == {
                "2.jpg": ("b", None),
                "images/1.jpg": ("a", None),
                "images/3.jpg": ("b", None),
                "labels.csv": (None, "table"),
                "labels.csv#row=4": ("b", "bad_path"),
            }


def test_labels_that_are_numbers_get_names(tmp_path: Path) -> None:
    table = "path,label\na.jpg,0\nb.jpg,1\nc.jpg,2\nd.jpg,\n"
    source(tmp_path, table, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    write(tmp_path, {"names.txt": b"hat\nshirt\n"})
    expected: Rows = {
        "a.jpg": ("hat", None),
        "b.jpg": ("top", None),
        "c.jpg": ("2", "no_label"),
        "d.jpg": (None, "no_label"),
        "labels.csv": (None, "table"),
        "names.txt": (None, "ignored"),
    }
    merged = {"shirt": "top"}
    listing = listed(tmp_path, class_names=["hat", "shirt"], merge_labels=merged)
    assert outcomes(listing) == expected
    assert column(listing, "message")["c.jpg"].endswith("its label 2 is the number of no named class")
    assert outcomes(listed(tmp_path, classes_file="names.txt", merge_labels=merged)) == expected
