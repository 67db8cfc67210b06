"""What one run of ``prepare`` is asked to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from beam_jobs.config import PrepareConfig
from infra.errors import UsageError
from infra.names import check_dataset_name, is_text, uri_of
from infra.settings import Settings


class JobRequest(Settings):
    """A source, the dataset it becomes a version of, and how."""

    source: str = Field(description="Folder of images: a URI, or a path as infra.names.uri_of gives it")
    dataset: str = Field(description="Name of the dataset")
    root: str = Field(description="Folder of the datasets: a path or a URI")
    config: PrepareConfig = PrepareConfig()

    @field_validator("source")
    @classmethod
    def _some_source(cls, source: str) -> str:
        if not source.strip():
            raise UsageError("the source is empty", "give the folder that holds the class folders, or .")
        return source

    @field_validator("root")
    @classmethod
    def _text_root(cls, root: str) -> str:
        place = root if "://" in root else str(Path(root).expanduser().absolute())
        if not is_text(place):
            raise UsageError(
                f"the path of the datasets is not UTF-8: {uri_of(place)}", "give another folder with --root"
            )
        return root

    @model_validator(mode="after")
    def _all_text(self) -> Self:
        try:
            self.model_dump_json()
        except PydanticSerializationError as error:
            raise UsageError(
                f"a setting or the source's URI is not UTF-8: {error}",
                r"in patterns and names of classes, write bytes that are not UTF-8 as \xNN",
            ) from error
        return self

    @field_validator("dataset")
    @classmethod
    def _usable_name(cls, name: str) -> str:
        return check_dataset_name(name)


def given_request() -> JobRequest:
    """What this process is asked for by the one that started it: all of its standard input."""
    return JobRequest.model_validate_json(sys.stdin.buffer.read())
