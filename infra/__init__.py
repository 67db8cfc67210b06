"""The ground floor: the dataset contract, storage, configuration, errors and processes.

Imports no Beam, TensorFlow or Prefect, so that every part above can run on its own.
"""

from __future__ import annotations


def release() -> str:
    """Return the release of Shardmill: in a checkout that of its pyproject.toml, else the installed one."""
    # Loaded here: shardmill.infra.hiding_files has to come before each module that may be hidden.
    import tomllib
    from importlib.metadata import version
    from pathlib import Path

    project = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if project.is_file():
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    return version("shardmill")
