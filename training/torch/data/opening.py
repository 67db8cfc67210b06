"""Open the loader of a published split, for ``Dataset.torch``."""

from __future__ import annotations

from shardmill.infra.errors import UsageError
from shardmill.infra.processes.process import num_cpus
from shardmill.training.config.reading import CacheForm
from shardmill.training.reading.batch_maker import BatchMaker
from shardmill.training.reading.budget import WindowMemory
from shardmill.training.reading.cache import PreloadedRecords
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.annotations import check_without_cache
from shardmill.training.reading.records.record_reader import RecordReader
from shardmill.training.torch.data.datasets import Examples
from shardmill.training.torch.data.loader import TorchLoader
from shardmill.training.torch.data.options import LoaderOptions, auto_workers
from shardmill.training.torch.data.ranks import RankOrder, ranks_on_this_host


def open_loader(
    records: RecordReader,
    own: RankOrder,
    spec: ExampleSpec,
    loading: LoaderOptions,
    *,
    preload: bool | CacheForm = False,
) -> TorchLoader:
    """Open the loader of one rank.

    Args:
        records: the records of the split.
        own: the steps, cut to the slice of the rank.
        spec: what batches hold.
        loading: how the loader works.
        preload: read all records into memory first, in this form; True: as they are stored; False: read them
            when they are needed.

    Raises:
        UsageError: an option is wrong, or the records do not fit into memory.
        ConfigError: the windows of the workers do not fit into memory.
    """
    version = records.split.version
    if preload is not False:
        check_without_cache(records.table.mask, "leave preload out")
        records = PreloadedRecords(records, "encoded" if preload is True else preload)
    if spec.last_batch == "partial":
        raise UsageError(
            "last_batch = 'partial' is not for PyTorch: all ranks take batches of one size",
            "give 'pad', whose padding has weight 0, or 'drop'",
        )
    loading = _fitting(records.windows, loading)
    source: BatchMaker | Examples
    if spec.image_size is None and records.table.mask is not None:
        raise UsageError(
            "whole images with masks have no form for PyTorch",
            "give an image_size, or read them with .batches(..., image_size=None)",
        )
    if spec.image_size is None:
        source = Examples(records, spec)
    else:
        source = BatchMaker(records, spec, threads=max(1, num_cpus() // ranks_on_this_host()))
    if not version.storage.is_local and preload is False:
        loading = {"multiprocessing_context": "spawn", **loading}
    described = {"dataset": version.ref, "split": records.table.split, **spec.identity}
    return TorchLoader(source, own, identity=described, **loading)


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
