"""Beam on Google Cloud Dataflow: the options of a job, its pipeline, and the errors of the service.

A job was translated by Dataflow's client, but none was run on the service.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from shardmill.beam_jobs.config import DataflowConfig
from shardmill.beam_jobs.execution.task import recover_fault
from shardmill.infra.errors import GO_ON, ConfigError, EnvironmentFault
from shardmill.infra.storage.locations import object_location, public_location

_SAID_CHARACTERS = 600
_EXAMPLES = {
    "project": "my-project",
    "region": "europe-west4",
    "temp_location": "gs://bucket/temporary",
    "image": "europe-west4-docker.pkg.dev/my-project/images/shardmill-prepare:0.2.0",
}


def check_dataflow(dataflow: DataflowConfig, places: Collection[str]) -> None:
    """Check that the settings are there, and that workers can reach the data.

    Args:
        dataflow: the settings.
        places: the locations of the source and of the datasets.

    Raises:
        ConfigError: a setting is missing or wrong, or a place is on this machine.
    """
    for name, example in _EXAMPLES.items():
        if not getattr(dataflow, name):
            raise ConfigError(
                f'runner.dataflow.{name} is missing: runner.name = "dataflow" needs it',
                f"set it, for example to {example!r}",
            )
    if not dataflow.temp_location.startswith("gs://"):
        raise ConfigError(
            f"runner.dataflow.temp_location = {dataflow.temp_location!r} is not in Google Cloud Storage",
            f"give a folder such as {_EXAMPLES['temp_location']!r}",
        )
    for place in places:
        found = object_location(place)
        if found is None or found.scheme == "file":
            raise ConfigError(
                f"{public_location(place)} is on this machine, where the workers of Dataflow cannot read or "
                "write it",
                "put the source and the datasets into an object store, such as gs://bucket/datasets",
            )


def dataflow_options(dataflow: DataflowConfig, name: str, given: Collection[str]) -> list[str]:
    """Options of Beam for a pipeline on Dataflow.

    Args:
        dataflow: the settings.
        name: name of the job; two jobs of one name do not run at once.
        given: names of options that the user gives, which are left out.
    """
    options = {
        "project": dataflow.project,
        "region": dataflow.region,
        "job_name": name.lower(),  # the service takes no capital letters
        "temp_location": dataflow.temp_location,
        "sdk_container_image": dataflow.image,
        "sdk_location": "container",  # the image has Beam; nothing is installed when a worker starts
    }
    return [f"--{name}={value}" for name, value in options.items() if name not in given]


def dataflow_pipeline(options: Sequence[str]) -> Any:
    """Return an empty pipeline for the service.

    Raises:
        ImportError: Dataflow's client is not installed. ValueError: an option is wrong.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

    return beam.Pipeline(runner=DataflowRunner(), options=PipelineOptions(flags=list(options)))


@contextlib.contextmanager
def dataflow_faults() -> Iterator[None]:
    """Raise the error of ours that an error of the service carries, or else ``EnvironmentFault``."""
    try:
        from apache_beam.runners.dataflow.dataflow_runner import DataflowRuntimeException
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        yield
    except ImportError as error:
        raise EnvironmentFault(
            f"Dataflow's client is not installed: {error}",
            "pip install --constraint constraints.txt 'apache-beam[gcp]'",
        ) from error
    except (DataflowRuntimeException, GoogleAPIError, GoogleAuthError, OSError, ValueError) as error:
        fault = recover_fault(error)
        if fault is not None:
            raise fault from error
        reason = " ".join(str(error).split())[:_SAID_CHARACTERS]
        raise EnvironmentFault(
            f"Dataflow did not do the job: {reason or type(error).__name__}",
            f"see the job and the logs of its workers in Google Cloud's console, then {GO_ON}",
        ) from error
