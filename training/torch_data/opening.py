"""From a published split to its loader: what ``Dataset.torch`` does where there is PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.catalog import DatasetVersion
from infra.process import num_cpus
from training.config import AugmentSettings
from training.order import Order
from training.reading.batches import BatchMaker
from training.reading.block_reader import BlockReader
from training.reading.records import RecordReader
from training.torch_data.examples import Examples
from training.torch_data.loader import TorchLoader
from training.torch_data.options import LoaderOptions, auto_workers
from training.torch_data.preload import PreloadedRecords
from training.torch_data.ranks import RankOrder, ranks_on_this_host, this_rank


def open_loader(
    version: DatasetVersion,
    records: RecordReader,
    order: Order,
    *,
    image_size: int | None,
    augment: AugmentSettings | None,
    seed: int,
    ranks: tuple[int | None, int | None, tuple[int, ...] | None],
    preload: bool,
    identity: Mapping[str, Any],
    loading: LoaderOptions,
) -> TorchLoader:
    """The loader of one rank.

    Args:
        version: whose records.
        records: of the split.
        ranks: rank, number of ranks and shares; what is None is asked of ``torch.distributed``.
        identity: what decides on the order, besides the version and the split.

    Raises:
        UsageError: an argument is wrong.
    """
    found_rank, found_num_ranks = this_rank()
    rank, num_ranks, shares = ranks
    slices = RankOrder(
        order,
        found_rank if rank is None else rank,
        found_num_ranks if num_ranks is None else num_ranks,
        shares,
    )
    if preload:
        records = PreloadedRecords(version, records)
    if isinstance(records, BlockReader):
        loading = _fitting(records, loading)
    threads = max(1, num_cpus() // ranks_on_this_host())
    source: BatchMaker | Examples
    if image_size is None:
        source = Examples(records, image_size=None, augment=augment, seed=seed)
    else:
        source = BatchMaker(records, image_size=image_size, augment=augment, seed=seed, threads=threads)
    if not version.storage.is_local and not preload:
        loading = {"multiprocessing_context": "spawn", **loading}
    described = {"dataset": version.ref, "split": records.table.split, **identity}
    return TorchLoader(source, slices, identity=described, **loading)


def _fitting(records: BlockReader, loading: LoaderOptions) -> LoaderOptions:
    """``loading`` with no more workers than there is memory for, since each has windows of its own.

    Raises:
        ConfigError: more are asked for.
    """
    workers = loading.get("num_workers", "auto")
    if workers == "auto":
        return {**loading, "num_workers": min(auto_workers(), records.most_processes)}
    records.check_processes(max(workers, 1))
    return loading
