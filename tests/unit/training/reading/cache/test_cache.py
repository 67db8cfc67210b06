"""Caches: the same elements in every mode, within their budget, whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset
from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, CorruptDataError, StorageError
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.reading import RecordReader
from shardmill.training.reading.cache import CachedReader, open_cached
from shardmill.training.reading.cache.folder import CacheFolder
from shardmill.training.reading.cache.stores import CachedImage, DiskStore, MemoryStore
from shardmill.training.reading.example_spec import ExampleSpec
from tests.samples.datasets.published import coloured, publish
from tests.samples.datasets.shared_store import fill_second

COUNTS = {"train": {"a": 12, "b": 7}, "test": {"a": 2, "b": 1}}
DECODED_BYTES = 19 * 40 * 52 * 3


@pytest.fixture
def version(tmp_path: Path) -> DatasetVersion:
    return publish(tmp_path / "datasets", coloured(COUNTS), shards_per_split=3)


def settings(tmp_path: Path, **given: Any) -> ReadingSettings:
    return ReadingSettings(cache_dir=str(tmp_path / "cache"), **given)


def opened(version: DatasetVersion, reading: ReadingSettings) -> CachedReader:
    reader, _ = open_cached(Dataset(version).reader("train"), reading)
    assert isinstance(reader, CachedReader)
    return reader


def remove_shards(version: DatasetVersion) -> None:
    for shard in version.shards("train"):
        path = version.storage.local_path(shard.path)
        assert path is not None
        path.unlink()


def images_of(reader: RecordReader, ordinals: np.ndarray) -> list[tuple[bytes, tuple[int, int, int]]]:
    return [(bytes(stored.image), stored.shape) for stored in reader.read_images(ordinals)]


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_encoded_images_come_from_the_cache_byte_for_byte(
    version: DatasetVersion, tmp_path: Path, place: str
) -> None:
    plain = Dataset(version).reader("train")
    ordinals = np.array([18, 3, 3, 7, 0])
    wanted, records = images_of(plain, np.arange(19)), plain.read_many(ordinals)
    reader = opened(version, settings(tmp_path, cache=place))
    assert images_of(reader, np.arange(19)) == wanted
    remove_shards(version)
    reader = reader.reopened()  # type: ignore[assignment]
    assert images_of(reader, ordinals) == [wanted[ordinal] for ordinal in ordinals]
    assert reader.read_many(ordinals) == records
    assert [bytes(stored.image) for stored in reader.read_run(2, 5)] == [image for image, _ in wanted[2:5]]
    reader.close()


def test_each_image_on_disk_is_checked_once_a_read(
    version: DatasetVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[int] = []
    get = DiskStore.get

    def noted(self: DiskStore, ordinal: int) -> CachedImage:
        got.append(ordinal)
        return get(self, ordinal)

    monkeypatch.setattr(DiskStore, "get", noted)
    reader = opened(version, settings(tmp_path, cache="disk"))
    reader.read_images(np.array([18, 7, 0]))
    reader.read_run(2, 5)
    assert got == [18, 7, 0, 2, 3, 4]
    reader.close()


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_decoded_images_are_pixels(version: DatasetVersion, tmp_path: Path, place: str) -> None:
    from shardmill.training.reading.decode import decode_window

    plain = Dataset(version).reader("train")
    reader = opened(version, settings(tmp_path, cache=place, cache_form="decoded"))
    assert reader.image_encoding == "raw"
    for ordinal in (0, 11):
        [stored] = plain.read_images(np.array([ordinal]))
        pixels = np.empty((40, 52, 3), np.uint8)
        decode_window(stored.image, "jpeg", stored.shape, (0, 0, 40, 52), pixels)
        [cached] = reader.read_images(np.array([ordinal]))
        assert bytes(cached.image) == pixels.tobytes()
        assert cached.shape == (40, 52, 3)
    reader.close()


@pytest.mark.parametrize(
    ("mode", "decoder"), [("indexed", "turbo"), ("indexed", "tensorflow"), ("streaming", "tensorflow")]
)
def test_pipelines_give_the_same_elements_in_every_cache_mode(
    version: DatasetVersion, tmp_path: Path, mode: str, decoder: Any
) -> None:
    from shardmill.training.augment.settings import AugmentSettings
    from shardmill.training.order import TrainingOrder
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline
    from shardmill.training.tensorflow.data.opening import open_stream, stream_plan

    def batches(**given: Any) -> list[dict[str, Any]]:
        reading = settings(tmp_path, shuffle_buffer=7, **given)
        reader, _ = open_cached(Dataset(version).reader("train"), reading)
        reading = reading.model_copy(update={"decoder": decoder})
        spec = ExampleSpec(image_size=24, augment=AugmentSettings(), reading=reading)
        if mode == "indexed":
            order = TrainingOrder(reader.table.label, seed=1, global_batch_size=6)
            pipeline: Any = IndexedPipeline(reader, order, spec)
        else:
            pipeline = open_stream(reader, stream_plan(reader, 6, seed=1), spec)
        return list(pipeline.dataset(0, 8).as_numpy_iterator())

    plain = batches()
    for place in ("memory", "disk"):
        for form in ("encoded", "decoded"):
            for left, right in zip(batches(cache=place, cache_form=form), plain, strict=True):
                assert left["ordinals"].tolist() == right["ordinals"].tolist()
                assert left["weights"].tolist() == right["weights"].tolist()
                difference = np.abs(left["images"].astype(int) - right["images"])
                # A window of a JPEG decoded by itself lacks its neighbours' colour at the edges.
                assert difference.mean() <= (0 if form == "encoded" else 0.5)


@pytest.mark.parametrize(
    ("given", "form", "said"),
    [
        ({"cache_form": "decoded", "cache_bytes": DECODED_BYTES}, "decoded", None),
        ({"cache_form": "decoded", "cache_bytes": DECODED_BYTES - 1}, "encoded", "encoded images are cached"),
        ({"cache_bytes": 1000}, None, "nothing is cached"),
    ],
)
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_what_does_not_fit_falls_back_and_says_so(
    version: DatasetVersion,
    tmp_path: Path,
    given: dict[str, Any],
    form: str | None,
    said: str | None,
    place: str,
) -> None:
    if place == "disk" and "cache_bytes" in given and given["cache_bytes"] == DECODED_BYTES:
        given = given | {"cache_bytes": DECODED_BYTES + 1000}
    heard: list[str] = []
    end = events.subscribe(lambda event: heard.append(str(event.get("message"))))
    try:
        source = Dataset(version).reader("train")
        reader, plan = open_cached(source, settings(tmp_path, cache=place, **given))
    finally:
        end()
    assert (plan.form if isinstance(reader, CachedReader) else None) == form
    warnings = [message for message in heard if "bytes, and the cache" in message]
    assert bool(warnings) == (said is not None)
    if said:
        assert said in warnings[0]
        assert "sample@1 train" in warnings[0]
        with pytest.raises(ConfigError, match="cache_bytes"):
            open_cached(source, settings(tmp_path, cache=place, cache_overflow="refuse", **given))
    reader.close()


def test_damage_in_a_cache_is_noticed(version: DatasetVersion, tmp_path: Path) -> None:
    opened(version, settings(tmp_path, cache="disk")).close()
    [path] = (tmp_path / "cache").glob("*.cache")
    data = path.read_bytes()
    path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    reader = opened(version, settings(tmp_path, cache="disk"))
    with pytest.raises(CorruptDataError, match="checksum of image 0") as caught:
        reader.read(0)
    assert f"rm {path}" in str(caught.value.remedy)
    reader.close()
    for broken in (data[:-1], data[5:], b"", data[:-20] + data[-16:]):
        path.write_bytes(broken)
        with pytest.raises(CorruptDataError, match="is damaged"):
            opened(version, settings(tmp_path, cache="disk"))


def test_a_cache_is_made_once_and_not_for_another_version(version: DatasetVersion, tmp_path: Path) -> None:
    first = opened(version, settings(tmp_path, cache="disk"))
    [path] = (tmp_path / "cache").glob("*.cache")
    made = path.stat().st_ino
    second = opened(version, settings(tmp_path, cache="disk"))
    assert path.stat().st_ino == made
    copied = pickle.loads(pickle.dumps(second))
    assert images_of(copied, np.arange(3)) == images_of(first, np.arange(3))
    other = publish(tmp_path / "others", coloured({"train": {"a": 5}}))
    opened(other, settings(tmp_path, cache="disk")).close()
    assert len(list((tmp_path / "cache").glob("*.cache"))) == 2
    first.close()
    second.close()


def test_old_caches_make_room_unless_they_are_read(version: DatasetVersion, tmp_path: Path) -> None:
    other = publish(tmp_path / "others", coloured({"train": {"a": 11, "b": 9}}), name="other")
    budget = 60_000
    reading = settings(tmp_path, cache="disk", cache_bytes=budget)
    first = opened(version, reading)
    [path] = (tmp_path / "cache").glob("*.cache")
    reader, plan = open_cached(Dataset(other).reader("train"), reading)
    assert not isinstance(reader, CachedReader), "the first is in use, and both do not fit"
    assert "caches in use" in plan.reason
    strict = reading.model_copy(update={"cache_overflow": "refuse"})
    with pytest.raises(StorageError, match="caches in use"):
        open_cached(Dataset(other).reader("train"), strict)
    first.close()
    opened(other, reading).close()
    assert not path.exists()


_KILLED = """
import os, sys
from pathlib import Path
from shardmill.training.reading.cache.folder import CacheFolder
def make():
    yield b"x" * 100000, 3
    print("writing", flush=True)
    sys.stdin.read()
with CacheFolder(sys.argv[1]).opened("a", 2, 100, 10**9, make):
    pass
"""


def test_a_killed_writer_leaves_nothing_that_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        assert (tmp_path / "a.partial").exists()
        writer.kill()
    with CacheFolder(tmp_path).opened("b", 1, 100, 10**9, lambda: [(b"image", 1)]) as store:
        assert bytes(store.get(0).image) == b"image"
    assert not (tmp_path / "a.partial").exists()
    assert not (tmp_path / "a.cache").exists()


_READER = """
import os, sys
from shardmill.training.config.reading import ReadingSettings
from shardmill import open_dataset
from shardmill.training.reading.cache import open_cached
dataset = open_dataset("sample", root=sys.argv[1])
reading = ReadingSettings(cache="disk", cache_dir=sys.argv[2])
reader, plan = open_cached(dataset.reader("train"), reading)
print(plan.place, sum(len(reader.read(ordinal).image) for ordinal in range(19)))
"""


def test_processes_that_start_together_share_one_cache(version: DatasetVersion, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _READER, str(tmp_path / "datasets"), str(tmp_path / "cache")]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {reader.communicate(timeout=120)[0] for reader in readers}
    assert {reader.returncode for reader in readers} == {0}
    total = sum(len(record.image) for record in Dataset(version).reader("train").read_many(np.arange(19)))
    assert said == {f"disk {total}\n"}
    assert len(os.listdir(tmp_path / "cache")) == 2, "the cache and its lock"  # noqa: PTH208


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child runs no code of TensorFlow
def test_forked_processes_share_a_cache_in_memory(version: DatasetVersion, tmp_path: Path) -> None:
    reader = opened(version, settings(tmp_path, cache="memory"))
    code = os.fork()
    if not code:
        reader.reopened().read_images(np.arange(19))
        os._exit(0)
    assert os.waitpid(code, 0)[1] == 0
    remove_shards(version)
    assert len(images_of(reader, np.arange(19))) == 19


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_batches_of_a_later_call_come_from_the_cache(
    version: DatasetVersion, tmp_path: Path, place: str
) -> None:
    def images(dataset: Dataset, epoch: int) -> list[np.ndarray]:
        options: Any = {"batch_size": 7, "image_size": 16, "last_batch": "pad", "epoch": epoch}
        return [batch.images for batch in dataset.batches("train", **options)]

    wanted = [images(Dataset(version), epoch) for epoch in range(2)]
    cached = Dataset(version, settings(tmp_path, cache=place, cache_form="decoded"))
    found = [images(cached, 0)]
    remove_shards(version)
    found.append(images(cached, 1))
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("has_memfd", [True, False])
def test_spawned_processes_share_a_cache_in_memory(has_memfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_memfd:  # as on macOS
        monkeypatch.delattr(os, "memfd_create", raising=False)
    store = MemoryStore(np.array([0, 2, 5]))
    store.put(0, b"ab", 1)
    child = multiprocessing.get_context("spawn").Process(target=fill_second, args=(store,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    found = store.get(1)
    assert found is not None
    assert (bytes(found.image), found.channels) == (b"abc", 3)
    assert pickle.loads(pickle.dumps(store)).get(0) is None, "elsewhere it begins empty"
