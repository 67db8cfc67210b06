"""Signatures of versions: what they cover, and what happens to them when versions change or go."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.flows.server.backup import back_up_dataset, check_dataset, restore_dataset
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_removing
from shardmill.infra.dataset.maintenance.garbage import collect_garbage
from shardmill.infra.dataset.publishing import record_report, rollback, with_report
from shardmill.infra.dataset.signatures import check_signature, sign_version, signed_versions
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import canonical_json, sha256_hex
from shardmill.infra.errors import ConfigError, LockedError, SignatureError
from shardmill.infra.format.layout import manifest_file, signature_file
from shardmill.infra.signing import PublicKey, SigningKey
from shardmill.infra.storage.filesystem import Storage
from tests.samples.datasets.keys import Keys, make_keys
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"a": 6, "b": 5}, "test": {"a": 2, "b": 2}}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "datasets"


@pytest.fixture
def version(root: Path) -> DatasetVersion:
    return publish(root, coloured(COUNTS), name="set")


@pytest.fixture
def signed(version: DatasetVersion, keys: Keys) -> DatasetVersion:
    sign_version(version, SigningKey(keys.private))
    return version


def local(version: DatasetVersion, path: str) -> Path:
    found = version.storage.local_path(path)
    assert found is not None
    return found


def command(*words: str, root: Path) -> int:
    return cli.run([*words, "--root", str(root)])


def test_a_command_signs_and_another_checks(
    version: DatasetVersion, keys: Keys, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = local(version, manifest_file(1)).read_bytes()
    digests = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    assert command("verify", "set", "--public-key", str(keys.public), root=root) == 5
    assert "set@1 is not signed" in capsys.readouterr().err
    assert command("sign", "set", "--key", str(keys.private), "--json", root=root) == 0
    place = json.loads(capsys.readouterr().out)["signature"]
    assert place.endswith("set/manifests/000001.json.sig")
    # The sample has no inputs, which is a problem of its own.
    assert command("verify", "set", "--public-key", str(keys.public), "--json", root=root) == 3
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["signed"] is True
    assert local(version, manifest_file(1)).read_bytes() == before
    assert all(path.stat().st_mtime_ns == time for path, time in digests.items())
    assert Catalog(root).versions("set") == [1]


def test_a_changed_shard_is_found_by_the_signed_checksums(
    signed: DatasetVersion, keys: Keys, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = local(signed, signed.manifest.shards[0].path)
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert command("verify", "set", "--public-key", str(keys.public), root=root) == 3
    assert signed.manifest.shards[0].path in capsys.readouterr().out


def altered(document: dict[str, Any]) -> bytes:
    """A manifest as anyone could write it, with a checksum that fits."""
    document["source"] = "s3://elsewhere"
    del document["checksum"]
    return json.dumps(document | {"checksum": sha256_hex(canonical_json(document))}, indent=1).encode()


def test_a_manifest_that_was_sealed_again_is_refused(
    signed: DatasetVersion, keys: Keys, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = local(signed, manifest_file(1))
    path.write_bytes(altered(json.loads(path.read_bytes())))
    Catalog(root).open("set")  # its own checksum fits
    assert command("verify", "set", "--public-key", str(keys.public), root=root) == 5
    assert "the manifest of set@1 is not what the owner of" in capsys.readouterr().err


def test_a_signature_of_another_key_or_version_is_refused(
    signed: DatasetVersion, keys: Keys, root: Path, tmp_path: Path
) -> None:
    other = make_keys(tmp_path, "other")
    with pytest.raises(SignatureError, match="Key mismatch"):
        check_signature(signed, PublicKey(other.public))
    second = rollback_of_next(root)
    shutil.copyfile(local(signed, signature_file(1)), local(second, signature_file(2)))
    with pytest.raises(SignatureError, match="set@2"):
        check_signature(second, PublicKey(keys.public))


def rollback_of_next(root: Path, key: Path | None = None) -> DatasetVersion:
    """Publish version 2 without signing it, or version 3 by rolling back to version 1."""
    catalog = Catalog(root, key)
    newest = catalog.open("set").manifest
    if newest.version == 1:
        return catalog.publish(newest.model_copy(update={"version": 2, "parent": 1}))
    return rollback(catalog, "set@1")


def test_publishing_with_a_key_signs(signed: DatasetVersion, keys: Keys, root: Path) -> None:
    rollback_of_next(root, keys.private)
    rollback_of_next(root, keys.private)
    rollback_of_next(root)
    assert signed_versions(signed.storage) == {1, 2, 3}
    assert Catalog(root).versions("set") == [1, 2, 3, 4]
    for number in (1, 2, 3):
        check_signature(Catalog(root).open(f"set@{number}"), PublicKey(keys.public))


def test_nothing_is_signed_while_manifests_may_be_rewritten(
    version: DatasetVersion, keys: Keys, root: Path
) -> None:
    with lock_for_removing(version.storage, "set"):
        with pytest.raises(LockedError):
            Catalog(root, keys.private).sign_if_unsigned(version)
        assert command("sign", "set", "--key", str(keys.private), root=root) == 4
    assert signed_versions(version.storage) == set()
    Catalog(root, keys.private).sign_if_unsigned(version)
    check_signature(version, PublicKey(keys.public))


def test_a_wrong_key_is_refused_before_anything_is_done(version: DatasetVersion, root: Path) -> None:
    pytest.importorskip("model_signing")
    with pytest.raises(ConfigError, match=r"missing\.pem cannot be read"):
        Catalog(root, root / "missing.pem")
    words = ["rollback", "set@1", "--key", str(root / "missing.pem")]
    assert command(*words, root=root) == 2
    assert command("compact", "set", "--key", str(root / "missing.pem"), root=root) == 2


def test_garbage_collection_keeps_signatures_of_kept_versions(
    signed: DatasetVersion, keys: Keys, root: Path
) -> None:
    for _ in range(2):
        rollback_of_next(root, keys.private)
    collect_garbage(Catalog(root), "set", drop=[1])
    assert signed_versions(signed.storage) == {2, 3}
    assert not signed.storage.exists(signature_file(1))
    check_signature(Catalog(root).open("set@3"), PublicKey(keys.public))


def test_a_manifest_that_is_written_again_loses_its_signature(signed: DatasetVersion, root: Path) -> None:
    catalog, page = Catalog(root), "data/feed/report.html"
    signed.storage.write_atomic(page, b"<html>first")
    catalog.replace(with_report(signed.storage, signed.manifest, page))
    assert signed_versions(signed.storage) == set()


def test_a_report_that_is_the_same_again_leaves_the_signature(
    version: DatasetVersion, keys: Keys, root: Path
) -> None:
    catalog, page = Catalog(root), "data/feed/report.html"
    version.storage.write_atomic(page, b"<html>first")
    catalog.replace(with_report(version.storage, version.manifest, page))
    sign_version(catalog.open("set"), SigningKey(keys.private))
    record_report(catalog, "set", page)
    check_signature(catalog.open("set"), PublicKey(keys.public))
    version.storage.write_atomic(page, b"<html>second")
    record_report(catalog, "set", page)
    assert signed_versions(version.storage) == set()


def test_a_backup_has_the_signatures_and_other_signatures_are_no_conflict(
    signed: DatasetVersion, keys: Keys, root: Path, tmp_path: Path
) -> None:
    backup = Storage.at(tmp_path / "backup")
    back_up_dataset(Catalog(root), "set", backup, with_shards=True)
    other = make_keys(tmp_path, "other")
    sign_version(signed, SigningKey(other.private))
    check_dataset(backup, Catalog(root), "set")
    restored = Catalog(tmp_path / "restored")
    restore_dataset(backup, restored, "set")
    check_signature(restored.open("set"), PublicKey(keys.public))


WRONG: dict[str, Callable[[Keys], list[str]]] = {
    "neither": lambda keys: ["sign", "--key", str(keys.private)],
    "both": lambda keys: ["sign", "set", "--run", "r", "--key", str(keys.private)],
    "no key": lambda keys: ["sign", "set"],
    "the wrong half": lambda keys: ["sign", "set", "--key", str(keys.public)],
    "nothing to verify": lambda keys: ["verify"],
    "a run without a key": lambda keys: ["verify", "--run", "r"],
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_commands_are_refused(case: str, version: DatasetVersion, keys: Keys, root: Path) -> None:
    assert command(*WRONG[case](keys), root=root) == 2
    assert signed_versions(version.storage) == set()
