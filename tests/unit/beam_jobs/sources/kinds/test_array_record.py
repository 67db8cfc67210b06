"""ArrayRecord files, as the library writes them: labels, any order, and damaged files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from shardmill.beam_jobs.schemas import file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.errors import ConfigError, NotFoundError
from tests.samples.images.photos import jpeg
from tests.samples.sources.rows import config_of, example, images_of, listed, outcomes


def write_records(path: Path, payloads: Sequence[bytes], group_size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = ArrayRecordWriter(str(path), f"group_size:{group_size}")
    for payload in payloads:
        writer.write(payload)
    writer.close()


def records(count: int) -> list[bytes]:
    return [example(image=[jpeg(row, 16, 16)], label=[row % 2]) for row in range(count)]


@pytest.mark.parametrize("group_size", [1, 16])
def test_records_in_any_order(tmp_path: Path, group_size: int) -> None:
    name = "mnist-train.array_record-00000-of-00001"
    write_records(tmp_path / name, records(70), group_size)
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n", encoding="utf-8")
    found = outcomes(listed(tmp_path, "array_record", classes_file="label.labels.txt"))
    assert found[f"{name}#row=0000069"] == ("dog", "train", None)
    assert len(found) == 2 + 70
    folder, config = SourceFolder(str(tmp_path)), config_of("array_record")
    refs = list(file_refs(list_inputs(folder, config).to_read()))
    reader = open_reader(folder, config)
    for row in (*range(70), *random.Random(0).sample(range(70), 10)):
        assert reader.read(refs[row]) == jpeg(row, 16, 16)


def test_damaged_files_crash_nothing(tmp_path: Path) -> None:
    write_records(tmp_path / "whole", records(20), 1)
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "whole").unlink()
    end = len(whole.rstrip(b"\0"))
    draw = random.Random(0)
    for trial in range(20):
        data = bytearray(whole[: draw.randrange(len(whole))] if trial % 2 else whole)
        for _ in range(trial // 2):
            data[draw.randrange(min(end, len(data)))] = draw.randrange(256)
        (tmp_path / "a.array_record").write_bytes(bytes(data))
        try:
            images = images_of(tmp_path, "array_record", image="image", label="label")
        except (NotFoundError, ConfigError):
            continue
        for uri, image in images.items():
            row = int(uri.rpartition("=")[2])
            assert image == jpeg(row, 16, 16) or isinstance(image, tuple)


def test_what_is_no_record_file(tmp_path: Path) -> None:
    (tmp_path / "a.array_record").write_bytes(b"nothing of the kind")
    with pytest.raises(NotFoundError, match="hold no image: it cannot be read as ArrayRecord"):
        listed(tmp_path, "array_record")
    write_records(tmp_path / "a.array_record", [], 1)
    with pytest.raises(NotFoundError, match="it holds no record"):
        listed(tmp_path, "array_record")
    write_records(tmp_path / "a.array_record", [b"text"], 1)
    with pytest.raises(ConfigError, match=r"not tf\.train\.Example"):
        listed(tmp_path, "array_record")
