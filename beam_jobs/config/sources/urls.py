"""Settings for fetching images from the web."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from shardmill.infra.settings import Settings, WholeText

DEFAULT_OPT_OUT = ("noai", "noimageai", "noindex", "noimageindex", "none", "tdm-reservation")


class UrlsConfig(Settings):
    """Fetching of the images of ``source.kind = "urls"``."""

    contact: Annotated[str, Field(pattern=r"^[!-'*-~][ -'*-~]{0,199}$"), WholeText()] | None = Field(
        None,
        description="Page or e-mail address where operators of servers reach you, sent in the User-Agent",
    )
    connections: Annotated[int, Field(ge=1, le=1024)] = Field(
        64, description="Most requests at a time, over all hosts"
    )
    connections_per_host: Annotated[int, Field(ge=1, le=64)] = Field(
        4, description="Most requests at a time to one host"
    )
    delay_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        0, description="Least time between the beginnings of two requests to one host (seconds)"
    )
    retries: Annotated[int, Field(ge=0, le=20)] = Field(
        3, description="How often a request is repeated whose fault may pass"
    )
    backoff_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        1, description="Pause before the first repetition (seconds); each further one is twice as long"
    )
    max_wait_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        300,
        description=(
            "Longest pause (seconds); an address whose server asks for more (Retry-After) is quarantined"
        ),
    )
    connect_seconds: Annotated[float, Field(gt=0, le=600)] = Field(
        10, description="Time limit for a connection (seconds)"
    )
    read_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        30, description="Longest time without a byte from the server (seconds)"
    )
    total_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        300, description="Time limit for a whole request (seconds)"
    )
    max_redirects: Annotated[int, Field(ge=0, le=20)] = Field(
        5, description="Most redirects that are followed from an address"
    )
    opt_out: tuple[str, ...] = Field(
        DEFAULT_OPT_OUT,
        description=(
            "Directives of X-Robots-Tag that reserve an image; tdm-reservation: the header TDM-Reservation: 1"
        ),
    )
    allow_private_hosts: bool = Field(False, description="Ask hosts without a public address too")

    @field_validator("opt_out", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def effective(self) -> dict[str, Any]:
        """Return the settings that decide which images are used; the others only pace the requests."""
        return self.model_dump(mode="json", include={"opt_out", "allow_private_hosts", "max_redirects"})
