"""Datasets are prepared from the Hub and pushed to it: the real client and a server on this machine."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardmill.beam_jobs import job
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.locate import locate
from shardmill.infra.errors import FailureBudgetExceeded, StorageError
from tests.samples.preparing.runs import stopped
from tests.samples.stores.hub import Files, Hub, serving

PETS = "hf://datasets/me/pets"


def picture(number: int) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (24, 32, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


IMAGES: Files = {
    f"train/{'cat' if number % 2 else 'großer hund'}/bild {number} ü.png": picture(number)
    for number in range(12)
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        served.add("me/pets", {"README.md": b"# Pets", **IMAGES})
        yield served


def prepared(root: Path, source: str = PETS) -> dict[str, Any]:
    config = {
        "source": {"kind": "auto"},
        "failure_budget": 0.1,
        "runner": {"processes": 1, "block_images": 8},
    }
    settings = PrepareConfig.model_validate(config)
    return job.prepare_version(JobRequest(source=source, dataset="d", root=str(root), config=settings))


def digests(root: Path) -> list[str]:
    inputs = Catalog(root).open("d").inputs()
    return sorted(each for each in inputs["record_id"].to_pylist() if each is not None)


def expected(files: Files) -> list[str]:
    return sorted(hashlib.sha256(data).hexdigest()[:16] for path, data in files.items() if "png" in path)


def asked_for(hub: Hub) -> list[str]:
    return [request.partition("/resolve/")[2][41:] for request in hub.requests if "/resolve/" in request]


def test_a_repository_is_prepared_at_its_commit_and_only_what_is_new_is_read_later(
    hub: Hub, tmp_path: Path
) -> None:
    first = hub.repositories["me/pets"].refs["main"]
    made = prepared(tmp_path)
    assert made["source"] == f"{PETS}@{first}"
    assert made["classes"] == ["cat", "großer hund"]
    assert digests(tmp_path) == expected(IMAGES)
    (place,) = locate(Catalog(tmp_path).open("d"), source=f"{PETS}/train/cat/bild 1 ü.png")
    assert place["location"] == f"{PETS}@{first}/train/cat/bild 1 ü.png"
    files = {**IMAGES, "README.md": b"# Pets"}
    hub.repositories["me/pets"].commit(files)
    assert prepared(tmp_path)["unchanged"]
    files["train/cat/new.png"] = picture(99)
    second = hub.repositories["me/pets"].commit(files)
    hub.requests.clear()
    made = prepared(tmp_path)
    assert (made["version"], made["source"]) == (2, f"{PETS}@{second}")
    assert asked_for(hub) == ["train/cat/new.png"]
    assert digests(tmp_path) == expected(files)


def test_a_run_that_goes_on_reads_the_commit_with_which_it_began(hub: Hub, tmp_path: Path) -> None:
    first = hub.repositories["me/pets"].refs["main"]
    with stopped(job, "assemble_shards"):
        prepared(tmp_path)
    hub.repositories["me/pets"].commit({**IMAGES, "train/cat/new.png": picture(99)})
    hub.requests.clear()
    made = prepared(tmp_path)
    assert made["source"] == f"{PETS}@{first}"
    assert made["num_records"] == len(IMAGES)
    assert asked_for(hub) == []
    assert prepared(tmp_path)["num_records"] == len(IMAGES) + 1


def test_a_refused_run_begins_anew_at_the_newest_commit(hub: Hub, tmp_path: Path) -> None:
    repository = hub.repositories["me/pets"]
    repository.commit({**IMAGES, **{f"train/cat/broken {n}.png": b"\x89PNG" for n in range(8)}})
    with pytest.raises(FailureBudgetExceeded):
        prepared(tmp_path)
    mended = repository.commit(IMAGES)
    assert prepared(tmp_path)["source"] == f"{PETS}@{mended}"


@pytest.mark.slow
def test_a_run_whose_commit_is_gone_reads_the_newest(hub: Hub, tmp_path: Path) -> None:
    repository = hub.repositories["me/pets"]
    with stopped(job, "assemble_shards"):
        prepared(tmp_path)
    del repository.commits[repository.refs["main"]]
    second = repository.commit({**IMAGES, "train/cat/new.png": picture(99)})
    assert prepared(tmp_path)["source"] == f"{PETS}@{second}"


def test_rows_of_parquet_are_prepared(hub: Hub, tmp_path: Path) -> None:
    rows = [
        {"image": {"bytes": data, "path": None}, "label": path.split("/")[1]} for path, data in IMAGES.items()
    ]
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    hub.add("me/rows", {"data/train-00000-of-00001.parquet": stream.getvalue(), "README.md": b"rows"})
    made = prepared(tmp_path, "hf://datasets/me/rows@main/data/train-00000-of-00001.parquet")
    assert made["num_records"] == len(IMAGES)
    assert made["classes"] == ["cat", "großer hund"]


def test_a_large_file_that_the_hub_lost_costs_itself(hub: Hub, tmp_path: Path) -> None:
    hub.lost.add(hashlib.sha256(IMAGES["train/cat/bild 1 ü.png"]).hexdigest())
    made = prepared(tmp_path)
    assert (made["num_records"], made["quarantine"]) == (len(IMAGES) - 1, {"unreadable": 1})


def test_a_repository_that_cannot_be_read_ends_the_run(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["me/pets"].is_gated = True
    with pytest.raises(StorageError, match=r"is gated.*accept its terms"):
        prepared(tmp_path)
    with pytest.raises(StorageError, match="has no revision v9"):
        prepared(tmp_path, f"{PETS}@v9")
