"""Signatures of files and folders: what they cover, and which keys are refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from shardmill.infra.errors import ConfigError, SignatureError, UsageError
from shardmill.infra.signing import PublicKey, SigningKey
from tests.samples.datasets.keys import Keys, make_keys


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return make_keys(tmp_path / "keys")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    (folder / "variables").mkdir(parents=True)
    (folder / "model.pb").write_bytes(b"graph")
    (folder / "variables" / "data").write_bytes(b"weights")
    return folder


def test_what_was_signed_passes_wherever_it_lies(keys: Keys, folder: Path, tmp_path: Path) -> None:
    signature = SigningKey(keys.private).sign(folder)
    moved = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    PublicKey(keys.public).check(moved, signature, "the export")


CHANGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda folder: (folder / "model.pb").write_bytes(b"Graph"),
    "added": lambda folder: (folder / "extra").write_bytes(b""),
    "added for git": lambda folder: (folder / ".gitattributes").write_bytes(b"* filter=evil"),
    "removed": lambda folder: (folder / "variables" / "data").unlink(),
    "renamed": lambda folder: (folder / "model.pb").rename(folder / "other.pb"),
    "linked": lambda folder: (folder / "link").symlink_to("model.pb"),
    "all removed": shutil.rmtree,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_folder_is_refused(change: str, keys: Keys, folder: Path) -> None:
    signature = SigningKey(keys.private).sign(folder)
    CHANGES[change](folder)
    with pytest.raises(SignatureError, match=r"the export is not what the owner of .*team\.pub signed"):
        PublicKey(keys.public).check(folder, signature, "the export")


def test_another_key_is_refused(keys: Keys, folder: Path, tmp_path: Path) -> None:
    signature = SigningKey(keys.private).sign(folder)
    other = make_keys(tmp_path / "keys", "other")
    with pytest.raises(SignatureError, match="Key mismatch"):
        PublicKey(other.public).check(folder, signature, "the export")


@pytest.mark.parametrize("signature", [b"", b"{}", b"\xff", b"[]", b'{"verificationMaterial": {}}', b"nul"])
def test_a_damaged_signature_is_refused(signature: bytes, keys: Keys, folder: Path) -> None:
    with pytest.raises(SignatureError):
        PublicKey(keys.public).check(folder, signature, "the export")


def test_a_signature_with_one_altered_digit_is_refused(keys: Keys, folder: Path) -> None:
    signature = SigningKey(keys.private).sign(folder)
    at = signature.index(b'"payload":"') + 40
    altered = signature[:at] + (b"A" if signature[at : at + 1] != b"A" else b"B") + signature[at + 1 :]
    with pytest.raises(SignatureError):
        PublicKey(keys.public).check(folder, altered, "the export")


def library_command(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "model_signing", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_command_of_the_library_accepts_our_signatures_and_we_accept_its(
    keys: Keys, folder: Path, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours.sig", tmp_path / "theirs.sig"
    ours.write_bytes(SigningKey(keys.private).sign(folder))
    words = [str(folder), "--signature", str(ours), "--public_key", str(keys.public)]
    library_command("verify", "key", *words)
    words = [str(folder), "--signature", str(theirs), "--private_key", str(keys.private)]
    library_command("sign", "key", *words)
    PublicKey(keys.public).check(folder, theirs.read_bytes(), "the export")


def written(path: Path, content: bytes | None) -> Path:
    if content is not None:
        path.write_bytes(content)
    return path


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


REFUSED: dict[str, Callable[[Keys], bytes | None]] = {
    "missing": lambda _: None,
    "no key": lambda _: b"secret",
    "a public key": lambda keys: keys.public.read_bytes(),
    "an RSA key": lambda _: pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
    "another curve": lambda _: pem(ec.generate_private_key(ec.SECP256K1())),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_sign_is_refused(case: str, keys: Keys, tmp_path: Path) -> None:
    path = written(tmp_path / "key.pem", REFUSED[case](keys))
    with pytest.raises(ConfigError, match=r"key\.pem"):
        SigningKey(path)


def test_an_encrypted_key_is_refused_in_words(tmp_path: Path) -> None:
    keys = make_keys(tmp_path, password=b"secret")
    with pytest.raises(ConfigError, match="encrypted"):
        SigningKey(keys.private)


def test_a_private_key_is_no_public_key(keys: Keys, tmp_path: Path) -> None:
    for path in (keys.private, tmp_path / "missing.pub"):
        with pytest.raises(UsageError, match=path.name):
            PublicKey(path)


def test_a_folder_with_a_link_is_not_signed(keys: Keys, folder: Path) -> None:
    (folder / "link").symlink_to("model.pb")
    with pytest.raises(UsageError, match="symlink"):
        SigningKey(keys.private).sign(folder)
