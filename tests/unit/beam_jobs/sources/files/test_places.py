"""Sources that overlap with folders that Shardmill writes to."""

from __future__ import annotations

import pytest

from shardmill.beam_jobs.sources.files.folder import folders_of_ours
from shardmill.infra.errors import UsageError

OPTIONS = "?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"


@pytest.mark.parametrize("options", ["?region=us-east-1", OPTIONS])
def test_a_source_within_the_dataset_is_refused_in_a_store_too(options: str) -> None:
    with pytest.raises(UsageError, match="is in the folder of the dataset photos"):
        folders_of_ours("s3://bucket/sets/photos/data", f"s3://bucket/sets{options}", "photos")
    with pytest.raises(UsageError, match="is the folder of the datasets itself"):
        folders_of_ours("s3://bucket/sets", f"s3://bucket/sets{options}", "photos")
    assert folders_of_ours("s3://bucket", f"s3://bucket/sets{options}", "photos") == [
        "s3://bucket/sets",
        "s3://bucket/sets/photos",
    ]
