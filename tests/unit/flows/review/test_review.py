"""The queue of a version, the commands of a review, and decisions as files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardmill.flows import cli
from shardmill.flows.review.exchange import read, written
from shardmill.flows.review.findings import REASONS, runs_of
from shardmill.flows.review.queue import Queue, make_queue
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.decisions import Decision, DecisionLog, Decisions
from shardmill.infra.errors import DataError, UsageError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.prepared import rows, run

HOSTILE = "<img src=x onerror=alert(1)>"


class Made(NamedTuple):
    """A dataset with every kind of finding, and its source."""

    root: Path
    runs: Path
    source: Path
    ids: dict[str, str]


def smaller(data: bytes) -> bytes:
    """The same picture at another size: other bytes with the same look."""
    with Image.open(io.BytesIO(data)) as image:
        out = io.BytesIO()
        image.resize((image.width * 3 // 4, image.height * 3 // 4)).save(out, "jpeg", quality=90)
    return out.getvalue()


def one_shade() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), (4, 4, 4)).save(out, "png")
    return out.getvalue()


def write_predictions(
    file: Path, ids: Sequence[str], probabilities: list[list[float]], **more: list[str]
) -> None:
    about = {"dataset": "d@1", "split": "test", "classes": ["cat", "dog"], "task": "single-label"}
    fields = [("id", pa.string()), ("probabilities", pa.list_(pa.float32()))]
    fields += [(name, pa.string()) for name in more]
    schema = pa.schema(fields, metadata={b"shardmill": json.dumps(about).encode()})
    pq.write_table(pa.table({"id": list(ids), "probabilities": probabilities, **more}, schema=schema), file)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("review")
    source, root, runs = (
        make_photos(folder / "source", {"cat": 8, "dog": 8}),
        folder / "root",
        folder / "runs",
    )
    same = (source / "cat/00006.jpg").read_bytes()
    like = smaller((source / "cat/00001.jpg").read_bytes())
    broken = jpeg(5)[:200]
    more = {"same": same, "like": like, "broken": broken, "empty": b"", "black": one_shade()}
    write(source, {f"dog/{name}.jpg": data for name, data in more.items()})
    run(source, root, failure_budget=0.5)
    found = rows(Catalog(root).open("d"))
    ids = {uri: row["record_id"] or (row["sha256"] or "")[:16] for uri, row in found.items()}
    of_run = runs / "d-v1-label-errors-5-0123"
    of_run.mkdir(parents=True)
    header = "id,source_uri,split,given_label,suggested_label,score,decision,label"
    listed = [
        f"{ids['cat/00003.jpg']},cat/00003.jpg,train,cat,dog,0.6,,",
        f"{ids['cat/00004.jpg']},cat/00004.jpg,train,cat,dog,0.9,,",
        f"{ids['cat/00007.jpg']},cat/00007.jpg,train,dog,cat,0.9,,",  # it is a cat by now
        f"{'0' * 16},gone.jpg,train,cat,dog,0.9,,",
        "damaged",
    ]
    (of_run / "label-errors.csv").write_text("\n".join([header, *listed]) + "\n")
    chosen = [ids[f"dog/0000{number}.jpg"] for number in range(1, 5)]
    write_predictions(
        of_run / "predictions-test.parquet", chosen, [[0.1, 0.9], [0.55, 0.45], [0.4, 0.6], [0, 1]]
    )
    other = runs / "e-v1-label-errors-5-0123"
    other.mkdir()
    (other / "label-errors.csv").write_text("\n".join([header, f"{chosen[0]},x,train,dog,cat,0.9,,"]) + "\n")
    return Made(root, runs, source, ids)


def queue_of(made: Made) -> Queue:
    return make_queue(Catalog(made.root).open("d"), made.runs)


def test_the_queue_has_a_row_for_each_record_with_all_reasons_the_most_important_first(made: Made) -> None:
    queue = queue_of(made)
    found = {row.uri: list(row.findings) for row in queue.rows}
    ordered = [row.uri for row in queue.rows]
    assert len(found) == len(queue.rows) == len(queue.by_record)
    assert ordered[:2] == ["cat/00004.jpg", "cat/00003.jpg"]
    assert (queue.rows[0].label, queue.rows[0].suggested) == ("cat", "dog")
    assert queue.rows[0].run == "d-v1-label-errors-5-0123"
    assert ordered[2] == "cat/00006.jpg"
    assert found["cat/00006.jpg"] == ["same-file"]
    assert "same-look" in found["cat/00001.jpg"]
    assert "same-look" in found["dog/like.jpg"]
    assert found["dog/broken.jpg"] == ["quarantine"]
    assert queue.by_record[made.ids["dog/broken.jpg"]].place is None
    assert "quality" in found["dog/black.jpg"]
    assert "dark: too dark" in queue.by_record[made.ids["dog/black.jpg"]].findings["quality"].text
    assert "cat/00007.jpg" not in found
    assert "gone.jpg" not in found
    unsure = [row.uri for row in queue.rows if list(row.findings) == ["unsure"]]
    assert unsure[0] == "dog/00002.jpg"
    assert queue.by_record[made.ids["dog/00002.jpg"]].suggested == "cat"
    assert queue.by_record[made.ids["dog/00003.jpg"]].suggested == ""
    assert queue.counts({made.ids["cat/00003.jpg"]})["label-error"] == 1
    assert list(queue.counts(())) == [reason.name for reason in REASONS]


def test_commands_list_import_and_export(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--root", str(made.root), "--runs", str(made.runs)]

    def asked(*words: str) -> Any:
        assert cli.run([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    first = asked("review", "list", "d", "--reason", "label-error", *places)["rows"]
    assert [row["source"] for row in first] == ["cat/00004.jpg", "cat/00003.jpg"]
    edited = tmp_path / "label-errors.csv"
    edited.write_text(
        "id,source_uri,given_label,suggested_label,decision,label\n"
        f"{made.ids['cat/00004.jpg']},cat/00004.jpg,cat,dog,accept,\n"
        ",dog/00001.jpg,dog,cat,drop,\n"
        f"{made.ids['cat/00003.jpg']},cat/00003.jpg,cat,dog,,\n"
        f"{made.ids['dog/broken.jpg']},dog/broken.jpg,,,drop,\n"
    )
    said = asked("review", "import", "d", str(edited), *places[:2])
    assert (said["num_added"], said["num_undecided"]) == (3, 1)
    assert asked("review", "import", "d", str(edited), *places[:2])["num_there_before"] == 3
    left = asked("review", "list", "d", *places)["rows"]
    assert not {"cat/00004.jpg", "dog/00001.jpg", "dog/broken.jpg"} & {row["source"] for row in left}
    assert len(asked("review", "list", "d", "--decided", *places)["rows"]) == 3
    for name in ("out.csv", "out.parquet"):
        assert asked("review", "export", "d", str(tmp_path / name), *places[:2])["num_decisions"] == 3
        assert asked("review", "import", "d", str(tmp_path / name), *places[:2])["num_there_before"] == 3
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    with (tmp_path / "out.csv").open(newline="") as stream:
        assert [row["key"] for row in csv.DictReader(stream)] == [row["key"] for row in table]
    said = {row["source_uri"]: (row["decision"], row["from"], row["to"]) for row in table}
    assert said["cat/00004.jpg"] == ("relabel", "cat", "dog")
    assert said["dog/00001.jpg"] == ("exclude", "dog", "")

    asked("review", "decide", "d", made.ids["dog/00002.jpg"], "keep", *places[:2])
    newest = asked("review", "list", "d", "--decided", *places)["rows"][0]
    assert (newest["record"], newest["from"]) == (made.ids["dog/00002.jpg"], "dog")
    made_again = run(made.source, made.root, failure_budget=0.5)
    assert made_again["version"] == 2
    outcomes = {uri: row["reason"] for uri, row in rows(Catalog(made.root).open("d")).items()}
    assert (outcomes["dog/00001.jpg"], outcomes["dog/broken.jpg"]) == ("review", "review")
    assert cli.run(["review", "list", "d", "--reason", "x", *places]) != 0
    assert "label-error" in capsys.readouterr().err


ROWS = [
    Decision(
        "k1", "0" * 16, "relabel", "Ada, the 1st", "2026-01-01T00:00:00+00:00", "cat", HOSTILE, 'a "b"', "r1"
    ),
    Decision("k2", "1" * 16, "exclude", "bob", "2026-01-02T00:00:00+00:00", "cat", "", "=cmd()"),
    Decision("k3", "2" * 16, "keep", "bob", "2026-01-02T00:00:00+00:00", "dog"),
    Decision("k4", "1" * 16, "undo", "bob", "2026-01-03T00:00:00+00:00", "cat"),
]


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_files_give_back_every_decision(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"decisions{kind}"
    file.write_bytes(written(Decisions(ROWS), {"0" * 16: "cat/ü,1.jpg"}, kind))
    assert read(file, "me", {}.get).decisions == ROWS
    assert read(file, "me", {}.get).num_undecided == 0


def test_label_studio_gives_back_the_decisions_in_force(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    file.write_bytes(written(Decisions(ROWS), {}, ".json"))
    said = [(row.record, row.decision, row.was, row.to, row.by) for row in read(file, "me", {}.get).decisions]
    assert said == [(row.record, row.decision, row.was, row.to, row.by) for row in (ROWS[0], ROWS[2])]
    tasks = json.loads(file.read_text())
    tasks[0]["annotations"] = []
    tasks[1]["annotations"][0]["result"] = [
        {"from_name": "label", "type": "choices", "value": {"choices": ["emu"]}}
    ]
    file.write_text(json.dumps(tasks))
    found = read(file, "me", {}.get)
    assert found.num_undecided == 1
    assert [(row.decision, row.to, row.was) for row in found.decisions] == [("relabel", "emu", "dog")]


def edited_tasks(folder: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> Path:
    """Tasks of Label Studio of a keep and a relabel, with other choices."""
    file = folder / "tasks.json"
    file.write_bytes(written(Decisions(ROWS), {}, ".json"))
    tasks = json.loads(file.read_text())
    for task in tasks:
        result = task["annotations"][0]["result"]
        choices = change({each["from_name"]: each["value"]["choices"][0] for each in result})
        task["annotations"][0]["result"] = [
            {"from_name": name, "type": "choices", "value": {"choices": [value]}}
            for name, value in choices.items()
        ]
    file.write_text(json.dumps(tasks))
    return file


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"label": "emu"}, [("relabel", "emu"), ("relabel", "emu")]),
        ({"label": "emu", "decision": "unsure"}, [("relabel", "emu"), ("relabel", "emu")]),
        ({"label": "emu", "decision": "exclude"}, [("exclude", ""), ("exclude", "")]),
        ({"decision": "keep"}, [("keep", ""), ("keep", "")]),  # the relabel has its new class as label
        ({"decision": "unsure"}, [("unsure", ""), ("unsure", "")]),
    ],
)
def test_a_label_that_is_changed_in_label_studio_is_a_relabel(
    choices: dict[str, str], said: list[tuple[str, str]], tmp_path: Path
) -> None:
    file = edited_tasks(tmp_path, lambda before: before | choices)
    found = read(file, "me", {}.get, Decisions(ROWS)).decisions
    assert [(row.decision, row.to) for row in found] == said
    for row, old in zip(found, (ROWS[0], ROWS[2]), strict=True):
        assert (row.key == old.key) == ((row.decision, row.to) == (old.decision, old.to))


def test_tasks_that_come_back_unchanged_add_nothing(tmp_path: Path) -> None:
    found = read(edited_tasks(tmp_path, dict), "me", {}.get, Decisions(ROWS)).decisions
    assert [row.key for row in found] == ["k1", "k3"]


def test_a_list_adds_a_decision_once_and_again_after_an_undo_or_another_one(tmp_path: Path) -> None:
    file = tmp_path / "label-errors.csv"
    record = "0" * 16
    file.write_text(f"id,source_uri,given_label,suggested_label,decision\n{record},x,cat,dog,accept\n")
    log = DecisionLog(Storage.at(str(tmp_path / "d")))

    def added() -> int:
        return len(log.append(read(file, "me", {}.get, log.read()).decisions).added)

    assert [added(), added()] == [1, 0]
    log.append([Decision("u", record, "undo", "bob")])
    assert [added(), added()] == [1, 0]
    log.append([Decision("r", record, "relabel", "bob", to="cat")])
    assert [added(), added()] == [1, 0]
    assert log.read().current[record].to == "dog"
    file.write_text(file.read_text() + f"{record},y,cat,dog,drop\n")
    with pytest.raises(DataError, match=r"row 2 .* contradicts row 1 .*: exclude, and relabel dog"):
        added()


SHEETS = {
    "utf-8 with a mark": ("utf-8-sig", ","),
    "semicolons": ("utf-8", ";"),
    "both": ("utf-8-sig", ";"),
    "tabs": ("utf-8", "\t"),
}


@pytest.mark.parametrize("kind", SHEETS)
def test_lists_that_a_spreadsheet_wrote_are_read(kind: str, made: Made, tmp_path: Path) -> None:
    encoding, mark = SHEETS[kind]
    folder = tmp_path / "runs" / "d-v1-label-errors-5-0123"
    folder.mkdir(parents=True)
    score = "0,75" if mark == ";" else "0.75"
    listed = [
        ("id", "source_uri", "split", "given_label", "suggested_label", "score", "decision", "label"),
        (made.ids["cat/00003.jpg"], "cat/00003.jpg", "train", "cat", "dog", score, "accept", ""),
    ]
    file = folder / "label-errors.csv"
    file.write_bytes("".join(mark.join(row) + "\r\n" for row in listed).encode(encoding))
    queue = make_queue(Catalog(made.root).open("d"), tmp_path / "runs")
    assert queue.rows[0].findings["label-error"].text == "the model says dog (by 0.75)"
    assert queue.problems == []
    (row,) = read(file, "me", {}.get).decisions
    assert (row.record, row.decision, row.to) == (made.ids["cat/00003.jpg"], "relabel", "dog")


@pytest.mark.parametrize(
    ("text", "words", "count"),
    [
        (b"id,given_label,suggested_label,score\nRECORD,cat,d\xf6g,0.9\n", "not UTF-8", 0),
        (b"id|given_label|suggested_label|score\nRECORD|cat|dog|0.9\n", "no column 'given_label'", 0),
        (b'id,given_label,suggested_label,score\nRECORD,cat,dog,0.9\n1,"x\n', "is no CSV", 1),
        (
            b"id,given_label,suggested_label,score\n1.2E+15,cat,dog,0.9\nRECORD,cat,dog,0.9\n",
            r"id '1\.2E\+15'",
            1,
        ),
        (b"id,given_label,suggested_label,score\nRECORD,cat,dog,nan\n", "the score 'nan'", 0),
        (b"id,given_label,suggested_label,score\nx\nRECORD,cat,dog,0.9\n", "line 2 .* has 1 values", 1),
    ],
)
def test_a_list_that_cannot_be_read_is_named_and_costs_only_itself(
    text: bytes, words: str, count: int, made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "d-v1-label-errors-5-0123"
    folder.mkdir(parents=True)
    (folder / "label-errors.csv").write_bytes(text.replace(b"RECORD", made.ids["cat/00003.jpg"].encode()))
    queue = make_queue(Catalog(made.root).open("d"), tmp_path / "runs")
    assert queue.counts(())["label-error"] == count
    assert len(queue.problems) == 1
    assert re.search(words, queue.problems[0])
    places = ["--root", str(made.root), "--runs", str(tmp_path / "runs")]
    assert cli.run(["review", "list", "d", *places]) == 0
    assert re.search(words, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "", "is no .csv"),
        ("a.csv", "record,decission\n0,keep\n", "did you mean 'decision'"),
        ("a.csv", "record,decision\nzz,keep\n", "row 1 of .*no record id"),
        ("a.csv", "source_uri,decision,by\ngone.jpg,keep,ada\n", "names no record: 'gone.jpg'"),
        ("a.csv", f"record,decision\n{'0' * 16},relabel\n", "new class"),
        ("a.csv", f"record,decision\n{'0' * 16},keep,3\n", "3 values, its header 2"),
        ("a.csv", f"id,source_uri,decision\n{'0' * 16},x,yes\n", "decision 'yes'"),
        ("a.parquet", "no parquet", "cannot be read"),
        ("a.json", "[1]", "cannot be read"),
        ("a.json", '{"a": 1}', "cannot be read"),
    ],
)
def test_files_that_make_no_sense_are_refused(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((DataError, UsageError), match=words):
        read(tmp_path / name, "me", {}.get)


def test_of_several_data_sets_the_rows_of_its_own_count(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "d-v1-label-errors-5-0123"
    folder.mkdir(parents=True)
    ids = [made.ids[f"cat/0000{number}.jpg"] for number in (3, 7, 1)]
    file = folder / "label-errors.csv"
    file.write_text(
        "data_set,id,source_uri,split,given_label,suggested_label,score,decision,label\n"
        f"e@3,{ids[0]},cat/00003.jpg,train,cat,dog,0.9,drop,\n"
        f"d@1?label = 'cat',{ids[1]},cat/00007.jpg,train,cat,dog,0.8,keep,\n"
        f"d@1,{ids[2]},cat/00001.jpg,train,cat,emu,0.7,,\n"
    )
    sets, chances = ["e@3", "d@1"], [[0.5, 0.5], [0.4, 0.6]]
    write_predictions(folder / "predictions-test.parquet", [ids[0], ids[1]], chances, data_set=sets)
    queue = make_queue(Catalog(made.root).open("d"), tmp_path / "runs")
    assert queue.problems == []
    found = {row.record: row for row in queue.rows}
    assert [ids[0] in found, *found[ids[1]].findings] == [False, "label-error", "unsure"]
    assert [found[record].suggested for record in ids[1:]] == ["dog", ""]  # emu is a class of e
    assert "the model says emu" in found[ids[2]].findings["label-error"].text
    result = read(file, "me", {}.get, dataset="d")
    assert [row.record for row in result.decisions] == [ids[1]]
    assert (result.num_undecided, result.num_elsewhere) == (1, 1)


def test_runs_of_label_errors_belong_to_the_dataset_that_their_name_begins_with(tmp_path: Path) -> None:
    names = [
        "d-v1-label-errors-01",
        "d-v2-v1-label-errors-01",
        "d-v12-label-errors-01",
        "dx-v1-label-errors-01",
    ]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "label-errors.csv").write_text("id\n")
    assert {path.name for path in runs_of(tmp_path, "d")} == {names[0], names[2]}
    assert [path.name for path in runs_of(tmp_path, "d-v2")] == [names[1]]


def test_mistyped_classes_are_told_and_contents_in_quarantine_can_be_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root = make_photos(tmp_path / "source", {"cat": 2, "dog": 2}), tmp_path / "root"
    write(source, {"dog/broken.jpg": jpeg(5)[:200]})
    run(source, root, failure_budget=0.5)
    found = rows(Catalog(root).open("d"))

    def said(*words: str) -> tuple[Any, str]:
        assert cli.run(["review", *words, "--root", str(root), "--json"]) == 0
        told = capsys.readouterr()
        return json.loads(told.out), told.err

    first, second = (row["record_id"] for uri, row in found.items() if uri.startswith("cat/"))
    result, told = said("decide", "d", first, "relabel", "--to", "dgo")
    assert result["new_classes"] == ["dgo"]
    assert "'dgo' is a new class of d; did you mean 'dog'?" in told
    assert said("decide", "d", first, "relabel", "--to", "dog")[1] == ""
    file = tmp_path / "decisions.csv"
    file.write_text(f"record;decision;to\n{second};relabel;catt\n")
    assert "'catt' is a new class of d; did you mean 'cat'?" in said("import", "d", str(file))[1]

    broken = found["dog/broken.jpg"]["sha256"][:16]
    listed, _ = said("list", "d", "--runs", str(tmp_path / "runs"), "--reason", "quarantine")
    assert [row["record"] for row in listed["rows"]] == [broken]
    said("decide", "d", broken, "exclude")
    said("decide", "d", broken, "undo")
    file.write_text("source_uri,decision\ndog/broken.jpg,exclude\n")
    assert said("import", "d", str(file))[0]["num_added"] == 1
    said("export", "d", str(tmp_path / "out.csv"))
    assert f"{broken},dog/broken.jpg,exclude" in (tmp_path / "out.csv").read_text()


def test_nothing_found_is_an_empty_queue(tmp_path: Path) -> None:
    run(make_photos(tmp_path / "source", {"cat": 3}), tmp_path / "root")
    version = Catalog(tmp_path / "root").open("d")
    assert make_queue(version, tmp_path / "no runs").rows == []
    assert DecisionLog(version.storage).read().rows == []


def test_images_without_one_class_are_kept_or_excluded_and_not_relabelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root = make_photos(tmp_path / "source", {"cat": 3}), tmp_path / "root"
    settings = {"source": {"labels": "none"}}
    run(source, root, **settings)
    version = Catalog(root).open("d")
    record = rows(version)["cat/00001.jpg"]["record_id"]
    of_run = tmp_path / "runs" / "d-v1-label-errors-1"
    of_run.mkdir(parents=True)
    header = "id,source_uri,split,given_label,suggested_label,score,decision,label"
    (of_run / "label-errors.csv").write_text(f"{header}\n{record},x,train,2.5,4.0,0.9,,\n")
    (row,) = make_queue(version, tmp_path / "runs").rows
    assert (row.label, row.suggested) == ("", "")
    assert row.findings["label-error"].text == "given 2.5; the model: 4.0"
    file = tmp_path / "decisions.csv"
    file.write_text(f"record,decision,to\n{record},relabel,dog\n")
    assert cli.run(["review", "import", "d", str(file), "--root", str(root)]) != 0
    assert "have no one class" in capsys.readouterr().err

    def decide(*words: str) -> int:
        return cli.run(["review", "decide", "d", *words, "--root", str(root)])

    assert decide(record, "relabel", "--to", "dog") != 0
    assert decide("0" * 16, "exclude") != 0
    assert decide(record, "undo") != 0
    assert decide(record, "exclude", "--reason", "no animal") == 0
    run(source, root, **settings)
    assert "no animal" in rows(Catalog(root).open("d"))["cat/00001.jpg"]["message"]
    assert DecisionLog(version.storage).read().current[record].was == ""
    assert decide(record, "undo") == 0
    run(source, root, **settings)
    assert rows(Catalog(root).open("d"))["cat/00001.jpg"]["outcome"] == "record"
