"""Masks of images in archives: in a folder of their own, or beside their images as in WebDataset.

::

    images/…/a.jpg          masks/…/a.png          in one archive, or images.zip and masks.zip
    0001.jpg                0001.mask.png          or .seg.png, or what source.masks.mask_suffix says
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import OTHER_FILE, SIDECAR
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.kinds.archive.labelling import is_image
from shardmill.beam_jobs.sources.kinds.archive.layouts import splits_by_name, without_ending
from shardmill.beam_jobs.sources.kinds.archive.listing import ListedArchive
from shardmill.beam_jobs.sources.masks import (
    FolderPairs,
    Pairing,
    SamplePairs,
    pair,
    with_reason,
    with_splits,
)
from shardmill.infra.errors import NotFoundError
from shardmill.infra.progress import log
from shardmill.infra.readable import counted


def with_member_masks(
    members: pa.Table, archives: Sequence[ListedArchive], config: PrepareConfig
) -> pa.Table:
    """Attach its mask to each image, and fill in the splits.

    Args:
        members: MEMBER_LISTING_SCHEMA, sorted by URI.
        archives: those that have members.
        config: settings of the run.

    Raises:
        NotFoundError: no image has a mask.
    """
    settings = config.source.masks
    samples, folders = SamplePairs(settings), FolderPairs(settings)
    columns = (members[name].to_pylist() for name in ("uri", "container", "status"))
    others: list[int] = []
    for row, (uri, container, status) in enumerate(zip(*columns, strict=True)):
        if status != Status.TO_READ:
            continue
        name = uri[len(container) + 1 :]
        if not is_image(name):
            others.append(row)
            continue
        path = f"{without_ending(container)}/{name}"
        samples.add(row, path)
        folders.add(row, path)
    are_samples = bool(samples.images.keys() & samples.masks.keys())
    found: Pairing = samples if are_samples else folders
    members = _with_splits(members, found, archives, config)
    if are_samples:
        words = "it is no image, and no mask of one"
        members = with_reason(members, np.array(others, np.int64), SIDECAR, words)
    else:
        words = f"neither an image in a folder {settings.images} nor a mask in a folder {settings.masks}"
        members = with_reason(
            members, np.sort([*others, *folders.others]).astype(np.int64), OTHER_FILE, words
        )
    listing, num_pairs = pair(members, found, settings)
    if not num_pairs:
        raise NotFoundError(
            f"no image in the archives has a mask: neither masks as 0001.mask.png beside images, nor "
            f"folders {settings.images} and {settings.masks} with files of the same names",
            "say what the names of masks end in, or name the folders: source.masks.mask_suffix, images, "
            "masks",
        )
    log(f"{counted(num_pairs, 'image')} with a mask in {counted(len(archives), 'archive')}")
    return listing


def _with_splits(
    members: pa.Table, found: Pairing, archives: Sequence[ListedArchive], config: PrepareConfig
) -> pa.Table:
    """Fill in the splits that the names of archives give, else those of folders."""
    if config.source.layout == "classes":
        return members
    by_archive = splits_by_name(archives, config)
    if by_archive is None:
        return with_splits(members, found)
    splits: list[str | None] = [None] * members.num_rows
    containers = members["container"].to_pylist()
    for rows in found.images.values():
        for row in rows:
            splits[row] = by_archive[containers[row]]
    at = members.schema.get_field_index("split")
    return members.set_column(at, members.schema.field(at), pa.array(splits, pa.string()))
