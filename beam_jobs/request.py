"""What one run of ``prepare`` is asked to do."""

from __future__ import annotations

from pydantic import Field, field_validator

from beam_jobs.config import PrepareConfig
from infra.contract import check_dataset_name
from infra.settings import Settings


class JobRequest(Settings):
    """A source, the dataset it becomes a version of, and how."""

    source: str = Field(description="Folder of images: a URI, or a path as infra.names.uri_of gives it")
    dataset: str = Field(description="Name of the dataset")
    root: str = Field(description="Folder of the datasets: a path or a URI")
    config: PrepareConfig = PrepareConfig()

    @field_validator("dataset")
    @classmethod
    def _usable_name(cls, name: str) -> str:
        return check_dataset_name(name)
