"""The packages that convert a model to other forms. No framework."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final, Literal

from shardmill.infra.errors import EnvironmentFault
from shardmill.training.config.export import ExportFormat

_FOR_ONNX: Final = {
    "tensorflow": ("tf2onnx", "onnxruntime"),
    "torch": ("onnx", "onnxscript", "onnxruntime"),
}


def check_packages(formats: Sequence[ExportFormat], framework: Literal["tensorflow", "torch"]) -> None:
    """Check that the packages which convert to these formats are installed.

    Raises:
        EnvironmentFault: a package is missing.
    """
    for package in _FOR_ONNX[framework] if "onnx" in formats else ():
        if find_spec(package) is None:
            raise EnvironmentFault(
                f"export.formats has 'onnx', which needs the package {package}",
                "pip install 'shardmill[onnx]', or take 'onnx' out of export.formats",
            )
