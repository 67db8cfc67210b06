"""The request: arguments and settings of one run of ``prepare``."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.infra.errors import UsageError
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.infra.settings import Settings
from shardmill.infra.storage.locations import check_dataset_name, is_text, uri_of

PREPARE: tuple[str, ...] = tuple(python_module("shardmill.beam_jobs.prepare"))


class JobRequest(Settings):
    """A source, the dataset to add a version to, and the configuration."""

    source: str = Field(description="Folder of images: a URI, or a path made one by storage.names.uri_of")
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


def prepare_command(source: str, dataset: str, root: str, config: PrepareConfig) -> list[str]:
    """Return the command that prepares a source as a version of a dataset."""
    given = [source, "--dataset", dataset, "--root", root]
    return [*PREPARE, *given, *config_arguments(config.model_dump_json(exclude_unset=True))]
