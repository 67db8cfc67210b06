"""Signatures of a run's exports: ``export.sig`` beside ``export``, ``model.onnx.sig`` beside ``model.onnx``.

The exports are the folder ``export`` and the files of the run's folder whose names begin with ``model``: the
weights and the other forms of the model. Each has a signature of its own, so that it can be passed on alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from shardmill.infra.errors import SignatureError
from shardmill.infra.signing import SUFFIX, PublicKey, SigningKey, unsigned
from shardmill.infra.storage.filesystem import Storage

_FOLDER, _FILES = "export", "model*"


def sign_exports(run_dir: Path, key: SigningKey) -> list[str]:
    """Sign every export of a finished run; earlier signatures are replaced.

    Returns:
        The names of the exports.
    """
    remove_signatures(run_dir)
    names, folder = _exports(run_dir), Storage.at(run_dir)
    for name in names:
        folder.write_atomic(f"{name}{SUFFIX}", key.sign(run_dir / name))
    return names


def remove_signatures(run_dir: Path) -> None:
    """Remove the signatures of exports that were written again."""
    folder = Storage.at(run_dir)
    for name in _signed(run_dir):
        folder.delete(f"{name}{SUFFIX}")


def check_exports(run_dir: Path, result: Mapping[str, Any], key: PublicKey) -> list[str]:
    """Check that every export of a finished run is as it was signed, and that none is missing or added.

    Args:
        run_dir: the folder of the run.
        result: result of the run.
        key: name of the signer.

    Returns:
        The names of the exports.

    Raises:
        SignatureError: an export is not signed, was changed, or is missing.
    """
    names = _exports(run_dir)
    known = {_FOLDER, *_signed(run_dir), *_written(result)}
    if missing := sorted(known - set(names)):
        raise SignatureError(
            f"the export {missing[0]} of {run_dir.name} is missing", "restore it from a copy, or train again"
        )
    for name in names:
        what, signature = f"the export {name} of {run_dir.name}", run_dir / f"{name}{SUFFIX}"
        if not signature.is_file():
            raise unsigned(what)
        key.check(run_dir / name, signature.read_bytes(), what)
    return names


def _exports(run_dir: Path) -> list[str]:
    found = [path.name for path in run_dir.glob(_FILES) if path.suffix != SUFFIX]
    return sorted([*found, _FOLDER] if (run_dir / _FOLDER).exists() else found)


def _signed(run_dir: Path) -> list[str]:
    """Return the names of the exports that have a signature."""
    paths = (*run_dir.glob(f"{_FILES}{SUFFIX}"), run_dir / f"{_FOLDER}{SUFFIX}")
    return [path.name.removesuffix(SUFFIX) for path in paths if path.is_file()]


def _written(result: Mapping[str, Any]) -> set[str]:
    """Return the names of the exports that the run wrote, as its result says."""
    forms = (result.get("exports") or {}).values()
    paths = [PurePath(form["path"]) for form in forms if "path" in form]
    folder = PurePath(result["run_dir"])
    return {path.name for path in paths if path.parent == folder}
