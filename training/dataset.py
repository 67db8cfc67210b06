"""The Python interface to a published dataset: ``open_dataset("clothing@3").tf("train")``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from infra.catalog import Catalog, DatasetVersion
from infra.errors import NotFoundError, UsageError
from infra.settings import default_root
from training.config import AugmentSettings
from training.order import LastBatch, Order, SequentialOrder, TrainingOrder
from training.order.balance import RULES
from training.reading import RecordReader, SplitTable, load_table

if TYPE_CHECKING:
    from training.torch_data import LoaderOptions, TorchLoader


def open_dataset(ref: str, root: str | Path | None = None) -> Dataset:
    """A published version.

    Args:
        ref: ``name``, ``name@3`` or ``name@latest``.
        root: where the datasets are; default ``$SHARDMILL_ROOT`` or ``./datasets``.

    Raises:
        NotFoundError: there is no such dataset or version.
    """
    return Dataset(Catalog(root or default_root()).open(ref))


class Dataset:
    """One version of a dataset, to read from."""

    def __init__(self, version: DatasetVersion) -> None:
        self.version = version
        self._table = cache(lambda split: load_table(version, split))

    @property
    def classes(self) -> list[str]:
        """Class names; a label is an index into them."""
        return self.version.manifest.classes

    @property
    def splits(self) -> list[str]:
        """The splits that have records."""
        return [name for name, split in self.version.manifest.splits.items() if split.num_examples]

    def table(self, split: str) -> SplitTable:
        """Where the records of a split lie, and their labels and ids.

        Raises:
            NotFoundError: the version has no such split. CorruptDataError: its files are damaged.
        """
        if split not in self.splits:
            raise NotFoundError(
                f"{self.version.ref} has no split {split!r}", f"it has: {', '.join(self.splits) or 'none'}"
            )
        table: SplitTable = self._table(split)
        return table

    def reader(self, split: str) -> RecordReader:
        """A reader of a split's records."""
        return RecordReader(self.version, self.table(split))

    def tf(
        self,
        split: str,
        *,
        batch_size: int = 32,
        image_size: int = 224,
        training: bool | None = None,
        seed: int = 0,
        epoch: int = 0,
        epochs: int = 1,
        balance: str = "natural",
        last_batch: LastBatch | Literal["partial"] | None = None,
        augment: AugmentSettings | None = None,
    ) -> Any:
        """A ``tf.data.Dataset`` of (images uint8 [B, S, S, 3], labels int32 [B]).

        Iterated again, it gives the same again: the order is a function of (seed, epoch). For ``model.fit``
        over several epochs ask for ``epochs=E`` and give ``steps_per_epoch=len(dataset) // E``.

        Args:
            split: "train", "validation" or "test".
            batch_size: examples a batch.
            image_size: height and width of the images (pixels).
            training: shuffled and augmented, or in stored order; default: whether the split is "train".
            seed: of order and augmentation.
            epoch: the first epoch.
            epochs: how many epochs follow one another.
            balance: a rule of ``training.order.balance``; for training.
            last_batch: a last batch that is not full: "drop" (the default for training), "partial" (the
                default otherwise: smaller), or "pad" (full, and elements are (images, labels, weights)).
            augment: how training examples are varied.

        Raises:
            NotFoundError: the version has no such split. UsageError: an argument is wrong.
        """
        from training import tensorflow_runtime  # noqa: F401  (before anything else imports TensorFlow)
        from training.pipelines.indexed import IndexedPipeline

        if batch_size < 1 or image_size < 1:
            raise UsageError(f"batch_size = {batch_size} and image_size = {image_size} must be at least 1")
        if balance not in RULES:
            raise UsageError(f"unknown balance {balance!r}", f"there are: {', '.join(RULES)}")
        training = split == "train" if training is None else training
        last_batch = last_batch or ("drop" if training else "partial")
        if last_batch == "partial" and epochs != 1:
            raise UsageError("a partial last batch is for one epoch", "use last_batch='drop' or 'pad'")
        reader = self.reader(split)
        order = self._order(reader.table, batch_size, training, seed, balance, last_batch)
        augmentation = (augment or AugmentSettings()) if training else None
        pipeline = IndexedPipeline(reader, order, image_size, augmentation, seed)
        steps = order.steps_per_epoch
        return _as_pairs(pipeline, epoch * steps, (epoch + epochs) * steps, last_batch, len(reader.table))

    def torch(
        self,
        split: str,
        *,
        batch_size: int = 32,
        image_size: int | None = 224,
        training: bool | None = None,
        seed: int = 0,
        balance: str = "natural",
        last_batch: LastBatch | None = None,
        augment: AugmentSettings | None = None,
        rank: int | None = None,
        num_ranks: int | None = None,
        shares: Sequence[int] | None = None,
        preload: bool = False,
        **loading: Unpack[LoaderOptions],
    ) -> TorchLoader:
        """PyTorch batches of one rank, an epoch an iteration: a ``training.torch_data.TorchLoader``.

        The batches of all ranks together hold the same records, step by step, as those of ``tf``.

        Args:
            split: "train", "validation" or "test".
            batch_size: examples a step, over all ranks together.
            image_size: height and width of the images (pixels); None: whole images, padded to the largest.
            training: shuffled and augmented, or in stored order; default: whether the split is "train".
            seed: of order and augmentation.
            balance: a rule of ``training.order.balance``; for training.
            last_batch: a last batch that is not full: "drop" (the default for training), or "pad" (full, with
                examples of weight 0).
            augment: how training examples are varied; whole images are not.
            rank, num_ranks: whose slice of each step; default: as ``torch.distributed`` says.
            shares: of the ranks in a step, a whole number each; default: all alike.
            preload: read all records into memory first.
            loading: ``epoch``, ``num_epochs``, ``num_workers``, ``prefetch_factor``, ``pin_memory``,
                ``persistent_workers``, as ``TorchLoader`` has them.

        Raises:
            NotFoundError: the version has no such split. UsageError: an argument is wrong.
            EnvironmentFault: PyTorch is not installed.
        """
        from training.torch_data.opening import open_loader

        if batch_size < 1 or (image_size is not None and image_size < 1):
            raise UsageError(f"batch_size = {batch_size} and image_size = {image_size} must be at least 1")
        if balance not in RULES:
            raise UsageError(f"unknown balance {balance!r}", f"there are: {', '.join(RULES)}")
        training = split == "train" if training is None else training
        if training and image_size is not None:
            augment = augment or AugmentSettings()
        last_batch = last_batch or ("drop" if training else "pad")
        order = self._order(self.table(split), batch_size, training, seed, balance, last_batch)
        return open_loader(
            self.version,
            self.table(split),
            order,
            image_size=image_size,
            augment=augment if training else None,
            seed=seed,
            ranks=(rank, num_ranks, None if shares is None else tuple(shares)),
            preload=preload,
            identity={"training": training, "seed": seed, "balance": balance},
            loading=loading,
        )

    def _order(
        self,
        table: SplitTable,
        batch_size: int,
        training: bool,
        seed: int,
        balance: str,
        last_batch: LastBatch | Literal["partial"],
    ) -> Order:
        if not training:
            return SequentialOrder(len(table), batch_size, "drop" if last_batch == "drop" else "pad")
        return TrainingOrder(
            table.label,
            seed=seed,
            global_batch_size=batch_size,
            balance=balance,
            last_batch="drop" if last_batch == "drop" else "pad",
        )


def _as_pairs(pipeline: Any, start: int, stop: int, last_batch: str, num_records: int) -> Any:
    """The pipeline's batches in the form that ``model.fit`` takes."""
    import tensorflow as tf

    batches = pipeline.dataset(start, stop)
    if last_batch == "pad":
        return batches.map(
            lambda batch: (batch["images"], batch["labels"], tf.cast(batch["weights"] > 0, tf.float32))
        )
    rest = num_records % pipeline.order.global_batch_size
    if last_batch == "drop" or not rest:
        return batches.map(_pair)
    # Not `skip`: it would read and decode all that it skips.
    full, tail = pipeline.dataset(start, stop - 1), pipeline.dataset(stop - 1, stop)
    return full.map(_pair).concatenate(
        tail.map(lambda batch: (batch["images"][:rest], batch["labels"][:rest]))
    )


def _pair(batch: dict[str, Any]) -> tuple[Any, Any]:
    return batch["images"], batch["labels"]
