"""Complete the listing with objects, metadata and masks, once the images are read."""

from __future__ import annotations

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.images.features import move_to_listing
from shardmill.beam_jobs.images.masks import with_mask_features
from shardmill.beam_jobs.images.objects import has_objects, place_objects
from shardmill.beam_jobs.schemas import has_masks
from shardmill.infra.progress import log
from shardmill.infra.readable import counted


def complete_listing(listing: pa.Table, facts: pa.Table, config: PrepareConfig) -> tuple[pa.Table, pa.Table]:
    """Place the objects in the stored images, and move features that reading found to the listing.

    Args:
        listing: LISTING_SCHEMA and columns of features.
        facts: PLACED_FACTS_SCHEMA and columns of features, of the files that are read, in the same order.
        config: settings of this run.

    Returns:
        The listing as planning needs it, and the facts without columns of features.
    """
    if has_objects(listing):
        upright = config.source.objects.coordinates == "upright"
        relative = config.source.has_relative_boxes
        placed = place_objects(listing, facts, config.image, upright=upright, relative=relative)
        listing, facts = placed.listing, placed.facts
        if placed.num_cut_off:
            cut_off = counted(placed.num_cut_off, "object")
            log(f"{cut_off} left out, because the stored images do not show them", level="warning")
    listing, facts = move_to_listing(listing, facts)
    if has_masks(listing):
        listing = with_mask_features(listing, list(config.source.masks.classes))
    return listing, facts
