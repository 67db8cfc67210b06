"""Sources: where the images come from, listed as one table and read a file at a time."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from beam_jobs.config import PrepareConfig
from beam_jobs.request import JobRequest
from beam_jobs.sources import kinds
from beam_jobs.sources.folder import SourceFolder
from beam_jobs.sources.listing import Listing, group_by_pattern
from beam_jobs.sources.places import folders_of_ours, place_of
from infra.errors import ConfigError
from infra.storage.filesystem import Storage
from infra.storage.names import name_of


def open_source(request: JobRequest) -> SourceFolder:
    """Open the source of a request, without the folders in it that Shardmill writes.

    Raises:
        UsageError: the source lies where the dataset is written.
    """
    location = request.source
    place = place_of(location if "://" in location else name_of(location))
    left_out = folders_of_ours(place, request.root, request.dataset)
    return SourceFolder(location, left_out, request.config.image.max_bytes)


def list_inputs(source: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a source, as the configured kind of source sees it.

    Raises:
        NotFoundError: there is nothing there. ConfigError: the kind is not known, or refuses the folder.
    """
    kind = config.source.kind
    if not kind.isidentifier() or not importlib.util.find_spec(f"{kinds.__name__}.{kind}"):
        known = [module.name for module in pkgutil.iter_modules(kinds.__path__)]
        near = difflib.get_close_matches(kind, known, n=1)
        raise ConfigError(
            f"source.kind = {kind!r} is no kind of source",
            f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}",
        )
    module = importlib.import_module(f"{kinds.__name__}.{kind}")
    list_kind = cast(Callable[[SourceFolder, PrepareConfig], Listing], module.list_inputs)
    listing = list_kind(source, config)
    if config.groups.pattern is not None:
        listing = replace(listing, table=group_by_pattern(listing.table, config.groups.pattern))
    left_out = [
        f"{place} is in the source and is left out, because Shardmill made it"
        for place in source.left_out
        if Storage.at(place).exists("")
    ]
    # In one chunk: planning takes rows from it, and would make a copy of its own.
    return replace(listing, table=listing.table.combine_chunks(), warnings=left_out + listing.warnings)
