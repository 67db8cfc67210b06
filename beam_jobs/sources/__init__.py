"""Kinds of sources, one module each.

A module ``beam_jobs.sources.<kind>`` has a function ``list_inputs(folder, config) -> Listing``. It is found
by its name, so a new kind is a new file.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from beam_jobs.config import PrepareConfig
from beam_jobs.places import folders_of_ours, place_of
from beam_jobs.request import JobRequest
from beam_jobs.sources.folder import SourceFolder
from beam_jobs.sources.listing import Listing, group_by_pattern
from infra.errors import ConfigError
from infra.names import name_of
from infra.storage import Storage

_NO_KINDS = ("folder", "listing", "names", "ignore")  # what the kinds are built of


def open_source(request: JobRequest) -> SourceFolder:
    """The source of a request, without what is Shardmill's own in it.

    Raises:
        UsageError: source and datasets lie in each other in a way that cannot be.
    """
    location = request.source
    place = place_of(location if "://" in location else name_of(location))
    left_out = folders_of_ours(place, request.root, request.dataset)
    return SourceFolder(location, left_out, request.config.image.max_bytes)


def list_inputs(source: SourceFolder, config: PrepareConfig) -> Listing:
    """Every file of a source, as the configured kind of source sees it.

    Raises:
        NotFoundError: there is nothing there. ConfigError: the kind, or what the kind makes of the folder.
    """
    kind = config.source.kind
    known = [module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NO_KINDS]
    if not kind.isidentifier() or kind in _NO_KINDS or not importlib.util.find_spec(f"{__name__}.{kind}"):
        near = difflib.get_close_matches(kind, known, n=1)
        raise ConfigError(
            f"source.kind = {kind!r} is no kind of source",
            f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}",
        )
    module = importlib.import_module(f"{__name__}.{kind}")
    list_kind = cast(Callable[[SourceFolder, PrepareConfig], Listing], module.list_inputs)
    listing = list_kind(source, config)
    if config.groups.pattern is not None:
        listing = replace(listing, table=group_by_pattern(listing.table, config.groups.pattern))
    told = [
        f"{place} lies in the source and is left out: it holds what Shardmill made"
        for place in source.left_out
        if Storage.at(place).exists("")
    ]
    # In one chunk: planning takes rows from it, and would make a copy of its own.
    return replace(listing, table=listing.table.combine_chunks(), warnings=told + listing.warnings)
