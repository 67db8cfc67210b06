"""The table [train.export]: the forms of the trained model besides the SavedModel."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, Literal

from pydantic import Field, field_validator

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.extras import install
from shardmill.infra.settings import Settings, WrongValue

ExportFormat = Literal["litert", "litert-int8", "onnx"]
_FOR_ONNX: Final = {
    "tensorflow": ("tf2onnx", "onnxruntime"),
    "torch": ("onnx", "onnxscript", "onnxruntime"),
}


class ExportSettings(Settings):
    """The forms of the trained model besides the SavedModel."""

    formats: tuple[ExportFormat, ...] = Field(
        default=(),
        description=(
            "'litert' (.tflite), 'litert-int8' (8 bits, a quarter of the size), 'onnx' (extra); "
            "each is compared on the test split"
        ),
    )
    max_accuracy_loss: float = Field(
        default=0.02,
        ge=0,
        le=1,
        description="Most accuracy that a written form may lose",
    )

    signing_key: str | None = Field(
        default=None,
        description="File with the private key that signs the exports (extra `signing`)",
    )

    def check_packages(self, framework: Literal["tensorflow", "torch"]) -> None:
        """Check that the packages which convert to the formats are installed.

        Raises:
            EnvironmentFault: a package is missing.
        """
        for package in _FOR_ONNX[framework] if "onnx" in self.formats else ():
            if find_spec(package) is None:
                raise EnvironmentFault(
                    f"export.formats has 'onnx', which needs the package {package}",
                    f"{install('onnx')}, or take 'onnx' out of export.formats",
                )

    @field_validator("formats")
    @classmethod
    def _once(cls, formats: tuple[ExportFormat, ...]) -> tuple[ExportFormat, ...]:
        if len(set(formats)) < len(formats):
            raise WrongValue("names a format twice", "name each once")
        return formats
