"""The extras of the package: the libraries that come with each, and the error for one that is missing.

``pip install shardmill`` brings the reader and the catalog. The other parts are extras, which
``pyproject.toml`` lists by the names of the distributions.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from typing import Final

from shardmill.infra.errors import EnvironmentFault

# Extra -> the libraries that it brings, by their import names.
LIBRARIES: Final = {
    "prepare": ("apache_beam", "imagecodecs", "tifffile", "httpx", "httpcore", "anyio", "grpc"),
    "tensorflow": ("tensorflow", "keras", "h5py", "tensorboard", "yaml"),
    "torch": ("torch", "torchvision", "tensorboard", "yaml"),
    "platform": ("prefect", "fastapi", "starlette", "uvicorn", "sqlalchemy", "prometheus_client", "httpx",
                 "yaml", "jsonschema", "apprise", "asyncpg", "tensorboard"),
    "jax": ("jax", "jaxlib"),
    "grain": ("grain",),
    "s3": ("boto3",),
    "array_record": ("array_record",),
    "heif": ("pi_heif",),
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


def missing_library(error: BaseException) -> EnvironmentFault | None:
    """Return what to tell the user if a library of an extra is not installed; None: something else failed.

    Args:
        error: what an import raised.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    library = error.name.partition(".")[0]
    extras = [extra for extra, libraries in LIBRARIES.items() if library in libraries]
    if not extras or importlib.util.find_spec(library) is not None:
        return None
    importers = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    needed_by = next((name for name in reversed(importers) if name.startswith("shardmill.")), "")
    preferred = [extra for package, extra in _OF_PACKAGE.items() if needed_by.startswith(package)]
    extra = next((extra for extra in preferred if extra in extras), extras[0])
    return EnvironmentFault(f"this needs {library}, which is not installed", install(extra))
