"""Open the loader of a published split, for ``Dataset.torch``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.errors import UsageError
from infra.processes.process import num_cpus
from training.config import AugmentSettings
from training.config.reading import CacheForm
from training.models.spec import Fit
from training.reading.batches.maker import BatchMaker
from training.reading.budget import WindowMemory
from training.reading.cache import PreloadedRecords
from training.reading.records.columns import NO_FEATURES, FeatureColumns
from training.reading.records.masks import check_without_cache
from training.reading.records.objects import SplitObjects
from training.reading.records.record_reader import RecordReader
from training.torch_data.examples import Examples
from training.torch_data.loader import TorchLoader
from training.torch_data.options import LoaderOptions, auto_workers
from training.torch_data.ranks import RankOrder, ranks_on_this_host


@dataclass(frozen=True, slots=True)
class LoaderRequest:
    """The batches that a loader shall give.

    Attributes:
        order: the steps, cut to the slice of one rank.
        image_size: height and width of the images (pixels); None: whole images, which are not augmented.
        augment: how examples are augmented; None: not at all.
        seed: the seed of the run.
        image_channels: 3, or 1 for the luma of the images.
        identity: the settings that determine the order, besides the version and the split; JSON-able.
        features: the features that batches have.
        objects: the objects whose features follow the images; None: none were asked for.
        fit: what is seen of an image without a random window.
    """

    order: RankOrder
    image_size: int | None
    augment: AugmentSettings | None
    seed: int
    image_channels: int
    identity: Mapping[str, Any]
    features: FeatureColumns = NO_FEATURES
    objects: SplitObjects | None = None
    fit: Fit = "crop"


def open_loader(
    records: RecordReader, request: LoaderRequest, loading: LoaderOptions, *, preload: CacheForm | None = None
) -> TorchLoader:
    """Open the loader of one rank.

    Args:
        records: the records of the split.
        request: the batches.
        loading: how the loader works.
        preload: read all records into memory first, in this form; None: read them when they are needed.

    Raises:
        UsageError: an option is wrong, or the records do not fit into memory.
        ConfigError: the windows of the workers do not fit into memory.
    """
    version = records.split.version
    if preload is not None:
        check_without_cache(records.table.mask, "leave preload out")
        records = PreloadedRecords(records, preload)
    loading = _fitting(records.windows, loading)
    source: BatchMaker | Examples
    if request.image_size is None and records.table.mask is not None:
        raise UsageError(
            "whole images with masks have no form for PyTorch",
            "give an image_size, or read them with .batches(..., image_size=None)",
        )
    if request.image_size is None:
        source = Examples(records, image_size=None, seed=request.seed, features=request.features)
    else:
        threads = max(1, num_cpus() // ranks_on_this_host())
        source = BatchMaker(
            records,
            image_size=request.image_size,
            augment=request.augment,
            threads=threads,
            image_channels=request.image_channels,
            features=request.features,
            objects=request.objects,
            fit=request.fit,
        )
    if not version.storage.is_local and preload is None:
        loading = {"multiprocessing_context": "spawn", **loading}
    described = {"dataset": version.ref, "split": records.table.split, **request.identity}
    return TorchLoader(source, request.order, identity=described, **loading)


def _fitting(windows: WindowMemory, loading: LoaderOptions) -> LoaderOptions:
    """Return ``loading`` with no more workers than there is memory for, since each has windows of its own.

    Raises:
        ConfigError: more are asked for.
    """
    workers = loading.get("num_workers", "auto")
    if workers == "auto":
        return {**loading, "num_workers": min(auto_workers(), windows.most_processes)}
    windows.check(max(workers, 1))
    return loading
