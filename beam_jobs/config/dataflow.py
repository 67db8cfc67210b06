"""Settings of Beam on Google Cloud Dataflow."""

from __future__ import annotations

from pydantic import Field

from shardmill.infra.settings import Settings


class DataflowConfig(Settings):
    """Google Cloud Dataflow; used if runner.name = "dataflow". Each setting is needed."""

    project: str = Field("", description="Google Cloud project that runs the jobs")
    region: str = Field("", description="Region that runs the jobs, such as europe-west4")
    temp_location: str = Field(
        "", description="Folder for files of the jobs, gs://BUCKET/FOLDER; not the folder of the datasets"
    )
    image: str = Field(
        "",
        description=(
            "Container image of the workers: the same Shardmill and libraries, and Beam's "
            "/opt/apache/beam/boot as entry point"
        ),
    )
