"""Versions that are signed when they are made, and signatures in object stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmill.beam_jobs import job as job_module
from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.beam_jobs.maintain import upkeep
from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.signatures import check_signature, signed_versions
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, SignatureError
from shardmill.infra.format.layout import signature_file
from shardmill.infra.signing import PublicKey
from shardmill.infra.storage.filesystem import Storage
from tests.samples.datasets.keys import Keys, make_keys
from tests.samples.datasets.published import coloured, publish
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.runs import Stopped, run, stopped
from tests.samples.stores.object_store import ObjectStore, serve_with_credentials
from tests.samples.training.finished_runs import RUN_JSON


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "source", {"a": 9, "b": 6})


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with serve_with_credentials("signatures-of-tests") as running:
        yield running


def verified(root: str | Path, keys: Keys) -> int:
    return cli.run(["verify", "d", "--public-key", str(keys.public), "--root", str(root)])


def dataset(root: Path) -> Storage:
    return Catalog(root).dataset_storage("d")


def test_prepare_signs_what_it_publishes_and_stores_the_same(
    source: Path, keys: Keys, tmp_path: Path
) -> None:
    root, plain = tmp_path / "root", tmp_path / "plain"
    run(source, root, signing_key=str(keys.private))
    assert verified(root, keys) == 0
    run(source, plain)
    assert verified(plain, keys) == 5
    signed, other = Catalog(root).open("d").manifest, Catalog(plain).open("d").manifest
    assert signed.model_copy(update={"created_at": other.created_at}) == other
    assert run(source, root)["unchanged"], "the key is no part of the version"


def test_a_version_whose_writer_died_before_it_signed_is_signed_by_the_next(
    source: Path, keys: Keys, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    with stopped(Catalog, "sign_if_unsigned"):
        run(source, root, signing_key=str(keys.private))
    assert verified(root, keys) == 5
    assert run(source, root, signing_key=str(keys.private))["unchanged"]
    assert verified(root, keys) == 0


def test_a_wrong_key_is_refused_before_the_source_is_read(
    source: Path, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(job_module, "list_inputs", read)
    for key in (keys.public, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=key.name):
            run(source, tmp_path / "root", signing_key=str(key))
    assert not (tmp_path / "root").exists()


def test_compaction_signs_and_purge_removes_what_no_longer_holds(
    source: Path, keys: Keys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, key = tmp_path / "root", str(keys.private)
    run(source, root, signing_key=key)
    write(source, {"b/new.jpg": jpeg(700)})
    run(source, root, signing_key=key)
    maintained = MaintainConfig(compact_after=2, signing_key=key)
    assert upkeep.maintain(Catalog(root, maintained.signing_key), "d", maintained)["compacted"] == 3
    assert verified(root, keys) == 0
    purged = ["purge", "d", "--source", "b/new.jpg", "--root", str(root), "--runs", str(tmp_path / "runs")]
    assert cli.run([*purged, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["signatures_removed"] == []
    assert signed_versions(dataset(root)) == {1, 2, 3}
    assert cli.run([*purged, "--apply"]) == 0
    assert "d@3 is not signed any more" in capsys.readouterr().err
    catalog = Catalog(root)
    for number in signed_versions(dataset(root)):
        check_signature(catalog.open(f"d@{number}"), PublicKey(keys.public))
    assert signed_versions(dataset(root)) <= {1}, "the other versions had the purged image"
    assert verified(root, keys) == 5


def test_a_dataset_in_a_store_is_signed_and_checked(
    source: Path, keys: Keys, store: ObjectStore, tmp_path: Path
) -> None:
    root = store.location("root")
    first = publish(tmp_path / "local", coloured({"train": {"a": 4, "b": 4}}), name="d")
    for entry in first.storage.list_files():
        Storage.at(root).write_atomic(f"d/{entry.path}", first.storage.read_bytes(entry.path))
    assert cli.run(["sign", "d", "--key", str(keys.private), "--root", root]) == 0
    version: DatasetVersion = Catalog(root).open("d")
    check_signature(version, PublicKey(keys.public))
    version.storage.write_atomic(signature_file(1), b"{}")
    with pytest.raises(SignatureError):
        check_signature(version, PublicKey(keys.public))
    rolled = Catalog(root, keys.private).publish(
        version.manifest.model_copy(update={"version": 2, "parent": 1})
    )
    check_signature(rolled, PublicKey(keys.public))


def test_a_run_in_a_store_is_signed_and_checked(
    keys: Keys, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, machine = store.location("runs"), "SHARDMILL_RUNS_COPY"
    exports = {"export/saved_model.pb": b"graph", "model.weights.h5": b"weights"}
    about = {"run.json": RUN_JSON, "result.json": b'{"history": [], "run_dir": "/runs/r"}'}
    for name, data in (exports | about).items():
        Storage.at(runs).write_atomic(f"r/{name}", data)
    words = ["--run", "r", "--runs", runs]
    check = ["verify", *words, "--public-key", str(keys.public)]
    monkeypatch.setenv(machine, str(tmp_path / "one machine"))
    assert cli.run(check) == 5
    assert cli.run(["sign", *words, "--key", str(keys.private)]) == 0
    monkeypatch.setenv(machine, str(tmp_path / "another machine"))
    assert cli.run(check) == 0
    Storage.at(runs).write_atomic("r/model.weights.h5", b"others")
    assert cli.run(check) == 5
