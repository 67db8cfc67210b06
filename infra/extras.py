"""The extras of the package: the libraries that come with each, and the error for one that is missing.

``pip install shardmill`` brings the reader and the catalog. The other parts are extras, which
``pyproject.toml`` lists by the names of the distributions.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from shardmill.infra.errors import EnvironmentFault

# Extra -> the libraries that it brings, by their import names; the one that it is for comes first.
LIBRARIES: Final = {
    "prepare": ("apache_beam", "imagecodecs", "tifffile", "httpx", "httpcore", "anyio", "grpc",
                "yaml"),
    "tensorflow": ("tensorflow", "keras", "h5py", "tensorboard", "yaml"),
    "torch": ("torch", "torchvision", "tensorboard", "yaml"),
    "platform": ("prefect", "fastapi", "starlette", "uvicorn", "sqlalchemy", "prometheus_client", "httpx",
                 "yaml", "jsonschema", "apprise", "asyncpg", "tensorboard"),
    "jax": ("jax", "jaxlib"),
    "grain": ("grain",),
    "hub": ("huggingface_hub", "httpx2"),
    "s3": ("boto3",),
    "array_record": ("array_record",),
    "heif": ("pi_heif",),
    "dicom": ("pydicom",),
    "video": ("av",),
    "mlflow": ("mlflow",),
    "nvml": ("pynvml",),
    "onnx": ("tf2onnx", "onnxruntime", "onnxscript"),
    "openlineage": ("openlineage",),
    "ray": ("ray",),
    "redis": ("prefect_redis", "redis"),
    "signing": ("model_signing",),
    "wandb": ("wandb",),
}  # fmt: skip
# Several extras bring these libraries. The package that needs one decides which extra an error names.
_OF_PACKAGE: Final = {
    "shardmill.flows": "platform",
    "shardmill.training.torch": "torch",
    "shardmill.training": "tensorflow",
}


def install(extra: str) -> str:
    """Return the command that installs an extra, or what to use where it has no wheels."""
    if extra == "tensorflow" and sys.version_info >= (3, 14):
        return f"TensorFlow has no wheels for this Python: use 3.11 to 3.13, or PyTorch: {install('torch')}"
    return f"pip install 'shardmill[{extra}]'"


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution; None: it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def lacking(user: str, library: str, extra: str) -> EnvironmentFault:
    """Return the error of a part that needs a library that is not installed.

    Args:
        user: the part, as the subject of the sentence.
        library: name of the library.
        extra: the extra that brings it.
    """
    return EnvironmentFault(f"{user} needs {library}, which is not installed", install(extra))


def extra_for(library: str, preferred: Sequence[str] = ()) -> str | None:
    """Return the extra to install for a library that is missing; None: no extra brings it.

    Args:
        library: its import name.
        preferred: extras that the user asked for, if several bring it. One that is installed but for this
            library comes before all others.
    """
    extras = [extra for extra, libraries in LIBRARIES.items() if library in libraries]
    extras.sort(key=lambda extra: preferred.index(extra) if extra in preferred else len(preferred))
    extras.sort(key=lambda extra: importlib.util.find_spec(LIBRARIES[extra][0]) is None)
    return next(iter(extras), None)


def missing_library(error: BaseException) -> EnvironmentFault | None:
    """Return what to tell the user if a library of an extra is not installed; None: something else failed.

    Args:
        error: what an import raised.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    library = error.name.partition(".")[0]
    if extra_for(library) is None or importlib.util.find_spec(library) is not None:
        return None
    importers = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    needed_by = next((name for name in reversed(importers) if name.startswith("shardmill.")), "")
    preferred = [extra for package, extra in _OF_PACKAGE.items() if needed_by.startswith(package)]
    return lacking("this", library, extra_for(library, preferred) or "")
