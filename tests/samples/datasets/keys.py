"""Keys of signers. A test that makes one is skipped where the extra ``signing`` is not installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True)
class Keys:
    """The files of a private key and of its public key."""

    private: Path
    public: Path


def make_keys(folder: Path, name: str = "team", password: bytes | None = None) -> Keys:
    """Make a new key on the curve P-256; the private one is encrypted if there is a password."""
    pytest.importorskip("model_signing", reason="needs the extra signing: pip install 'shardmill[signing]'")
    folder.mkdir(parents=True, exist_ok=True)
    keys = Keys(folder / f"{name}.pem", folder / f"{name}.pub")
    key = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    keys.private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption))
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    keys.public.write_bytes(public)
    return keys
