"""The Python interface to a published dataset: ``open_dataset("clothing@3").tf("train")``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from infra.catalog import Catalog, DatasetVersion
from infra.errors import NotFoundError, UsageError
from infra.locations import default_root
from training.augment.batch_draws import refuse_batched
from training.config import AugmentSettings
from training.config.data import DataSettings
from training.config.reading import Mode, ReadingSettings
from training.order import LastBatch, Order, rank_slice
from training.order.options import OrderOptions, asked_data, asked_order
from training.reading import BatchMaker, RecordReader, SplitTable, load_table
from training.reading.block_reader import by_block
from training.reading.damage import BadRecords
from training.reading.iterate import NumpyBatches
from training.reading.options import ReadingOptions, asked_reading
from training.reading.staging import staging_for

if TYPE_CHECKING:
    from training.torch_data import TorchLoader, TorchOptions

IMAGE_SIZE = 224  # height and width of images (pixels) where none is asked for


def open_dataset(ref: str, root: str | Path | None = None, **reading: Unpack[ReadingOptions]) -> Dataset:
    """A published version.

    Args:
        ref: ``name``, ``name@3`` or ``name@latest``.
        root: where the datasets are, a folder or a URI; default ``$SHARDMILL_ROOT`` or ``./datasets``.
        reading: how records are read, by the names of the settings ``train.reading``: ``staging_dir`` for
            shards in an object store, ``max_bad_records`` to leave out, and for ``tf``: ``decoder``,
            ``cache``, ``ram_budget_bytes``, ``mode="streaming"`` and what else ``ReadingOptions`` has.

    Raises:
        NotFoundError: there is no such dataset or version. ConfigError: a setting is wrong.
    """
    settings = asked_reading(reading)
    return Dataset(Catalog(root or default_root()).open(ref), settings)


class Dataset:
    """One version of a dataset, to read from. ``bad_records`` are those that were left out, of all splits."""

    def __init__(self, version: DatasetVersion, reading: ReadingSettings | None = None) -> None:
        self.version = version
        self.reading = reading or ReadingSettings()
        self.bad_records = BadRecords(self.reading.max_bad_records)
        self._staging = staging_for(version, self.reading)
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

    def reader(self, split: str, order: Order | None = None) -> RecordReader:
        """A reader of a split's records; for an order by block, one that reads whole blocks ahead of use.

        Raises:
            ConfigError: the windows of the order do not fit into memory.
        """
        records = RecordReader(self.version, self.table(split), self._staging, self.bad_records)
        if order is None:
            return records
        return by_block(self.version, records, order, self.reading.ram_budget_bytes)

    def close(self) -> None:
        """End the work ahead of use; what is staged stays for the next run."""
        if self._staging is not None:
            self._staging.close()

    def tf(
        self,
        split: str,
        *,
        batch_size: int = 32,
        image_size: int = IMAGE_SIZE,
        training: bool | None = None,
        seed: int = 0,
        epoch: int = 0,
        epochs: int = 1,
        last_batch: LastBatch | Literal["partial"] | None = None,
        augment: AugmentSettings | None = None,
        **order: Unpack[OrderOptions],
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
            last_batch: a last batch that is not full: "drop" (the default for training), "partial" (the
                default otherwise: smaller), or "pad" (full, and elements are (images, labels, weights), as
                they are with ``class_weights``).
            augment: how training examples are varied. With MixUp or CutMix, labels are distributions over the
                classes, float32 [B, C].
            order: of training: ``balance`` and what else ``OrderOptions`` has.

        Raises:
            NotFoundError: the version has no such split. UsageError, ConfigError: an argument is wrong.
        """
        from training import tensorflow_runtime  # noqa: F401  (before anything else imports TensorFlow)
        from training.pipelines.batch_draws import augmented_on_host
        from training.pipelines.indexed import IndexedPipeline
        from training.pipelines.pairs import as_pairs
        from training.pipelines.pipeline import Pipeline
        from training.pipelines.training_input import Wanted, open_images

        asked = self._asked(split, batch_size, image_size, training, seed, last_batch, augment, order)
        _check_partial(asked.last_batch, epochs)
        pipeline: Pipeline
        if asked.augment is None:
            decoder = self.reading.decoder
            pipeline = IndexedPipeline(self.reader(split), asked.order, image_size, None, seed, decoder)
        else:
            # Here "auto" is the exact order: who asks for a seed and an epoch gets what they name.
            mode: Mode = "streaming" if self.reading.mode == "streaming" else "indexed"
            wanted = Wanted(asked.data, self.reading.model_copy(update={"mode": mode}), asked.augment)
            opened = open_images(wanted, self.version, self.reader(split), asked.order, image_size)
            pipeline = augmented_on_host(opened.pipeline, asked.augment, seed, len(self.classes))
        steps = pipeline.order.steps_per_epoch
        return as_pairs(pipeline, epoch * steps, (epoch + epochs) * steps, asked.last_batch)

    def batches(
        self,
        split: str,
        *,
        batch_size: int = 32,
        image_size: int = IMAGE_SIZE,
        training: bool | None = None,
        seed: int = 0,
        epoch: int = 0,
        step: int = 0,
        epochs: int = 1,
        last_batch: LastBatch | Literal["partial"] | None = None,
        augment: AugmentSettings | None = None,
        rank: int = 0,
        num_ranks: int = 1,
        shares: Sequence[int] | None = None,
        threads: int | None = None,
        **order: Unpack[OrderOptions],
    ) -> NumpyBatches:
        """Batches as numpy arrays, which JAX and all else take: an iterable of ``training.reading.Batch``.

        They are those of ``tf`` and ``torch``, step by step. To go on after batch b of an earlier process,
        ask for ``epoch=b.epoch, step=b.step + 1``.

        Args:
            split, batch_size, image_size, training, seed, epochs, last_batch, augment, order: as for ``tf``,
                but for RandAugment, MixUp and CutMix, which are TensorFlow's work.
            epoch, step: the first epoch, and the step in it to begin with.
            rank, num_ranks: whose slice of each step.
            shares: of the ranks in a step, a whole number each; default: all alike.
            threads: that decode; default: one for each CPU of this process.

        Raises:
            NotFoundError: the version has no such split. UsageError, ConfigError: an argument is wrong.
        """
        asked = self._asked(split, batch_size, image_size, training, seed, last_batch, augment, order)
        _check_partial(asked.last_batch, epochs)
        refuse_batched(asked.augment)
        steps = asked.order.steps_per_epoch
        if not 0 <= step <= steps:
            raise UsageError(f"step = {step} of an epoch of {steps} steps")
        rank_slice(batch_size, rank, num_ranks, shares)  # says now what would be wrong with these
        reader = self.reader(split, asked.order)
        return NumpyBatches(
            BatchMaker(reader, image_size=image_size, augment=asked.augment, seed=seed, threads=threads),
            asked.order,
            epoch * steps + step,
            (epoch + epochs) * steps,
            rank,
            num_ranks,
            None if shares is None else tuple(shares),
            cut_padding=asked.last_batch == "partial",
        )

    def torch(
        self,
        split: str,
        *,
        batch_size: int = 32,
        image_size: int | None = IMAGE_SIZE,
        training: bool | None = None,
        seed: int = 0,
        last_batch: LastBatch | None = None,
        augment: AugmentSettings | None = None,
        rank: int | None = None,
        num_ranks: int | None = None,
        shares: Sequence[int] | None = None,
        preload: bool = False,
        **options: Unpack[TorchOptions],
    ) -> TorchLoader:
        """PyTorch batches of one rank, an epoch an iteration: a ``training.torch_data.TorchLoader``.

        The batches of all ranks together hold the same records, step by step, as those of ``tf``.

        Args:
            split, training, seed, augment: as for ``batches``; whole images are not augmented.
            batch_size: examples a step, over all ranks together.
            image_size: height and width of the images (pixels); None: whole images, padded to the largest.
            last_batch: a last batch that is not full: "drop" (the default for training), or "pad" (full, with
                examples of weight 0).
            rank, num_ranks: whose slice of each step; default: as ``torch.distributed`` says.
            shares: of the ranks in a step, a whole number each; default: all alike.
            preload: read all records into memory first.
            options: of the order, as for ``tf``; and ``epoch``, ``num_epochs``, ``num_workers``,
                ``prefetch_factor``, ``pin_memory``, ``persistent_workers``, ``multiprocessing_context``: see
                ``training.torch_data.LoaderOptions``.

        Raises:
            NotFoundError: the version has no such split. UsageError, ConfigError: an argument is wrong.
            EnvironmentFault: PyTorch is not installed.
        """
        from training.torch_data.opening import open_loader
        from training.torch_data.options import divided

        order, loading = divided(options)
        training = split == "train" if training is None else training
        last_batch = last_batch or ("drop" if training else "pad")
        asked = self._asked(split, batch_size, image_size, training, seed, last_batch, augment, order)
        refuse_batched(asked.augment)
        return open_loader(
            self.version,
            self.reader(split, None if preload else asked.order),
            asked.order,
            image_size=image_size,
            augment=None if image_size is None else asked.augment,
            seed=seed,
            ranks=(rank, num_ranks, None if shares is None else tuple(shares)),
            preload=preload,
            identity={"training": training, "seed": seed, **order},
            loading=loading,
        )

    def _asked(
        self,
        split: str,
        batch_size: int,
        image_size: int | None,
        training: bool | None,
        seed: int,
        last_batch: LastBatch | Literal["partial"] | None,
        augment: AugmentSettings | None,
        order: OrderOptions,
    ) -> _Asked:
        """What all frameworks make of the arguments they share."""
        if batch_size < 1 or (image_size is not None and image_size < 1):
            raise UsageError(f"batch_size = {batch_size} and image_size = {image_size} must be at least 1")
        training = split == "train" if training is None else training
        last_batch = last_batch or ("drop" if training else "partial")
        data = asked_data(batch_size, last_batch, seed, order)
        found = asked_order(data, self.table(split), self.classes, training=training)
        return _Asked(data, found, (augment or AugmentSettings()) if training else None, last_batch)


class _Asked(NamedTuple):
    data: DataSettings
    order: Order
    augment: AugmentSettings | None
    last_batch: LastBatch | Literal["partial"]


def _check_partial(last_batch: str, epochs: int) -> None:
    if last_batch == "partial" and epochs != 1:
        raise UsageError("a partial last batch is for one epoch", "use last_batch='drop' or 'pad'")
