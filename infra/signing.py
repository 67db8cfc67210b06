"""Sign files and folders with a key on elliptic curves, and check signatures, as OpenSSF Model Signing does.

A signature is a Sigstore bundle: the names and SHA-256 of all signed files, signed with ECDSA. The command
``model_signing verify key`` checks it too. Needs the packages of the extra ``signing``.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from shardmill.infra.errors import ConfigError, SignatureError, StorageError, UsageError
from shardmill.infra.extras import lacking

SUFFIX = ".sig"
_CURVES = "a key on the curve P-256, P-384 or P-521 in PEM"


class SigningKey:
    """A private key, which is read once.

    Args:
        path: a PEM file, not encrypted.

    Raises:
        ConfigError: there is no such file, or it has no private key that can sign.
        EnvironmentFault: the extra ``signing`` is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        model_signing = _library()
        place = Path(path).expanduser()
        self._config = model_signing.signing.Config().set_hashing_config(_every_file(model_signing))
        try:
            self._config.use_elliptic_key_signer(private_key=place)
        except OSError as error:
            raise ConfigError(
                f"the key {place} cannot be read: {error.strerror}", "name a PEM file"
            ) from error
        except (ValueError, TypeError, AttributeError) as error:  # RSA keys have no curve
            raise ConfigError(
                f"{place} is no private key that can sign: {error}",
                f"it must be {_CURVES}, without a password: "
                "openssl ecparam -name prime256v1 -genkey -noout -out key.pem",
            ) from error

    def sign(self, path: Path) -> bytes:
        """Return the signature of a file, or of all files of a folder.

        Raises:
            UsageError: it has a symbolic link. StorageError: it cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="shardmill-sign-") as folder:
            signature = Path(folder) / f"made{SUFFIX}"
            try:
                self._config.sign(path, signature)
            except OSError as error:
                raise StorageError(f"{path} cannot be signed: {error}") from error
            except ValueError as error:
                raise UsageError(f"{path} cannot be signed: {error}") from error
            return signature.read_bytes()

    def sign_bytes(self, name: str, data: bytes) -> bytes:
        """Return the signature of a file with this name and content."""
        with tempfile.TemporaryDirectory(prefix="shardmill-sign-") as folder:
            copy = Path(folder) / name
            copy.write_bytes(data)
            return self.sign(copy)


class PublicKey:
    """The public key of a signer.

    Args:
        path: a PEM file.

    Raises:
        UsageError: there is no such file, or it has no public key of a signer.
        EnvironmentFault: the extra ``signing`` is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        self._library = _library()
        self._path = Path(path).expanduser()
        try:
            self._verifier()
        except OSError as error:
            raise UsageError(
                f"the key {self._path} cannot be read: {error.strerror}", "name a PEM file"
            ) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{self._path} is no public key of a signer: {error}",
                f"it must be {_CURVES}: openssl ec -in key.pem -pubout -out key.pub",
            ) from error

    def check(self, path: Path, signature: bytes, what: str) -> None:
        """Check that a file or folder is what was signed; no file is missing or added.

        Args:
            path: the file or folder.
            signature: what ``SigningKey.sign`` returned.
            what: its name in errors.

        Raises:
            SignatureError: it is not, or another key signed it. StorageError: it cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="shardmill-sign-") as folder:
            stored = Path(folder) / f"stored{SUFFIX}"
            stored.write_bytes(signature)
            try:
                with contextlib.redirect_stdout(sys.stderr):  # it prints warnings
                    self._verifier().verify(path, stored)
            except OSError as error:
                raise StorageError(f"{what} cannot be read: {error}") from error
            except Exception as error:  # whoever altered the signature chooses the error
                why = str(error).strip() or "the signature does not belong to this content"
                raise SignatureError(
                    f"{what} is not what the owner of {self._path} signed: {why}",
                    "do not use it, unless you know who changed it; "
                    "whoever has the private key can sign it again: shardmill sign",
                ) from error

    def check_bytes(self, name: str, data: bytes, signature: bytes, what: str) -> None:
        """Check that a file with this name and content was signed; see ``check``."""
        with tempfile.TemporaryDirectory(prefix="shardmill-sign-") as folder:
            copy = Path(folder) / name
            copy.write_bytes(data)
            self.check(copy, signature, what)

    def _verifier(self) -> Any:
        """Return a new verifier: each keeps the paths that a signature leaves out."""
        config = self._library.verifying.Config().set_hashing_config(_every_file(self._library))
        return config.use_elliptic_key_verifier(public_key=self._path)


def unsigned(what: str) -> SignatureError:
    """Return the error for something that has no signature."""
    return SignatureError(
        f"{what} is not signed", "whoever has the private key can sign it: shardmill sign --key FILE"
    )


def _every_file(model_signing: Any) -> Any:
    """Hash every file, also those of Git, which the library leaves out."""
    return model_signing.hashing.Config().set_ignored_paths(paths=[], ignore_git_paths=False)


def _library() -> Any:
    try:
        import model_signing
    except ImportError as error:
        raise lacking("a signature", error.name or "model_signing", "signing") from error
    return model_signing
