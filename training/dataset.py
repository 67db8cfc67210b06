"""The Python interface to a published dataset: ``open_dataset("clothing@3").tf("train")``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from shardmill.infra.arguments import checked
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.joined import JoinedVersion
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import Missing, joined_text
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.format.examples import ImageRecord
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import LABEL_FEATURES, LabelKind, check_has_classes
from shardmill.infra.near_names import near_names
from shardmill.infra.readable import counted
from shardmill.infra.settings import validate
from shardmill.infra.storage.locations import default_root
from shardmill.training.config.data import DataSettings, MixtureEnd
from shardmill.training.config.reading import (
    CacheForm,
    ReadingOptions,
    ReadingSettings,
    reading_settings_from,
)
from shardmill.training.frameworks import load
from shardmill.training.order import Order, rank_slice
from shardmill.training.reading import BatchMaker, RecordReader, SplitTable, load_table, open_records
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.reading.blocks.stored import by_block
from shardmill.training.reading.budget import check_whole_images
from shardmill.training.reading.cache import CacheMemory
from shardmill.training.reading.example_spec import (
    ExampleOptions,
    ExampleSpec,
    LastBatchOption,
    told_as_arguments,
)
from shardmill.training.reading.opening import EXACT, choose_mode, open_for_order
from shardmill.training.reading.records.columns import NO_FEATURES, FeatureColumns
from shardmill.training.reading.records.split_records import BadRecords
from shardmill.training.reading.records.split_table import load_features
from shardmill.training.reading.staging.staging import staging_for

if TYPE_CHECKING:
    import pyarrow as pa

    from shardmill.training.grain.sources import GrainSplit
    from shardmill.training.jax.batches import JaxBatches
    from shardmill.training.torch.data import TorchLoader, TorchOptions


@checked
def open_dataset(
    ref: str | Sequence[str],
    root: str | Path | None = None,
    *,
    weights: Sequence[float] | None = None,
    temperature: float | None = None,
    end: MixtureEnd | int | None = None,
    classes: Mapping[str, str] | None = None,
    drop_near_duplicates: bool = False,
    missing_classes: Missing | None = None,
    **reading: Unpack[ReadingOptions],
) -> Dataset:
    """Open a published version of a dataset, or several that are read as one.

    Args:
        ref: ``name``, ``name@3`` or ``name@latest``; of a view with its query: ``name@3?width > 800``. Of
            several data sets a list; a later one behind ``train +=`` is read in the split "train" alone.
        weights: the share of each data set in every step of training; default: all are read as one data set.
        temperature: in place of weights: shares in proportion to size^(1 / temperature).
        end: with such shares, an epoch ends when the "first" data set is through (the default), when the
            "last" is, or after so many steps.
        classes: other names of classes, under which those of several data sets are joined.
        drop_near_duplicates: leave out records of train that look the same as one that another data set
            tests, or that an earlier one has in train (``Dataset.near_duplicates``).
        missing_classes: of classes that a data set lacks, where an image may show several: "absent" from its
            images, or "ignored" in their loss and figures; by default training asks.
        root: the folder or URI of the datasets; default ``$SHARDMILL_ROOT`` or ``./datasets``.
        **reading: how records are read, by the names of the settings ``train.reading`` (``ReadingOptions``):
            ``staging_dir`` for shards in an object store, ``max_bad_records`` to leave out, ``cache``,
            ``cache_form`` and ``ram_budget_bytes`` for training examples of ``tf`` and all examples of the
            others, and for ``tf`` ``decoder``, ``mode="streaming"`` and others.

    Raises:
        NotFoundError: there is no such dataset or version.
        UsageError: an argument or the query is wrong. ConfigError: a setting is wrong.
    """
    settings = reading_settings_from(reading)
    given = {"weights": weights, "temperature": temperature, "end": end}
    mixture = {f"mixture_{name}": value for name, value in given.items() if value is not None}
    with told_as_arguments():
        version = Catalog(default_root() if root is None else root).open_view(
            joined_text(ref, classes, drop_near=drop_near_duplicates, missing=missing_classes)
        )
        validate(DataSettings, mixture, where="the arguments")
        return Dataset(version, settings, mixture)


@checked
class Dataset:
    """One version of a dataset: a collection of its records as they are stored, split by split.

    "val" stands for the split "validation", unless there is a split of that name.

    Attributes:
        version: the published version.
        reading: how records are read.
        bad_records: the damaged records that were left out, of all splits.
    """

    def __init__(
        self,
        version: DatasetVersion,
        reading: ReadingSettings | None = None,
        mixture: Mapping[str, Any] | None = None,
    ) -> None:
        """``mixture``: settings of [train.data] about the shares of several data sets."""
        self.version = version
        self._mixture = dict(mixture or {})
        self.reading = ReadingSettings() if reading is None else reading
        self.bad_records = BadRecords(self.reading.max_bad_records)
        self._staging = staging_for(version, self.reading)
        self._memory = CacheMemory()
        self._table = cache(lambda split: load_table(version, split))

    @property
    def classes(self) -> list[str]:
        """Class names; a label is an index into them."""
        return self.version.manifest.classes

    @property
    def splits(self) -> list[str]:
        """The splits that have records."""
        of_version = [name for name, split in self.version.manifest.splits.items() if split.num_examples]
        return (
            of_version if self.version.is_whole else [name for name in of_version if len(self._table(name))]
        )

    def table(self, split: str) -> SplitTable:
        """Return the places, labels and ids of the records of a split.

        Raises:
            NotFoundError: the version has no such split.
            CorruptDataError: its index is damaged.
        """
        table: SplitTable = self._table(self._named(split))
        return table

    def _named(self, split: str) -> str:
        """Return the name of a split.

        Raises:
            NotFoundError: the version has no such split.
        """
        there = self.splits
        if split in there:
            return split
        short = {"val": "validation"} if "validation" in there else {}
        if split in short:
            return short[split]
        near = near_names(split, [*there, *short])
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise NotFoundError(
            f"{self.version.ref} has no split {split!r}", f"{hint}it has: {', '.join(there) or 'none'}"
        )

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {self._num_records(split):,}" for split in self.splits) or "no records"
        return f"<Dataset {self.version.ref}: {splits}; {counted(len(self.classes), 'class', 'classes')}>"

    def _repr_html_(self) -> str:
        """Show splits, classes and a few pictures in a notebook."""
        from shardmill.infra.dataset.shown import version_html  # reading loads no pages

        return version_html(self.version)

    def __len__(self) -> int:
        """Return the number of records of all splits."""
        return sum(self._num_records(split) for split in self.splits)

    def __iter__(self) -> Iterator[ImageRecord]:
        """Read all records as they are stored, split by split.

        Raises:
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        for split in self.splits:
            reader = self.reader(split)
            yield from (reader.read(ordinal) for ordinal in range(len(reader.table)))

    def _num_records(self, split: str) -> int:
        return self.version.num_examples(split) if self.version.is_whole else len(self._table(split))

    def reader(self, split: str, order: Order | None = None) -> RecordReader:
        """Open a reader of a split's records. For an order by block it reads whole blocks ahead of use.

        Raises:
            ConfigError: the windows of the order do not fit into ``ram_budget_bytes``.
        """
        records = open_records(self.version, self.table(split), self._staging, self.bad_records)
        if order is None:
            return records
        return by_block(records, order, self.reading.ram_budget_bytes)

    def query(self, text: str) -> Dataset:
        """Return the view of the records for which a query is true.

        A query is a text such as ``label == 'hat' and width > 800``. The view is read like
        the whole version, without a copy; classes keep their numbers.

        Raises:
            UsageError: the query is wrong.
        """
        return Dataset(self.version.query(text), self.reading, self._mixture)

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """Return the indexes as a ``pyarrow.dataset.Scanner``: a row for each record, of all splits.

        It reads nothing until ``to_table()``, ``to_batches()``, ``head(10)`` or ``count_rows()`` is called,
        and then only the columns that are asked for.

        Args:
            columns: the columns; None: ``split``, ``label_name`` and all columns of the index.

        Raises:
            NotFoundError: there is no such column.
        """
        return self.version.scan(columns)

    def near_duplicates(self) -> pa.Table:
        """Return the records of several data sets that look the same as one of another.

        A row each, with ``group``, ``data_set`` (its number), ``split``, ``record_id``, ``uri``, and
        ``is_superfluous``: what ``drop_near_duplicates`` leaves out of train.

        Raises:
            UsageError: there is one data set.
        """
        if not isinstance(self.version, JoinedVersion):
            raise UsageError(
                f"{self.version.ref} is one data set",
                "its near-duplicates were found when it was prepared: see its report",
            )
        return self.version.near_duplicates

    def close(self) -> None:
        """End the background threads. Staged shards stay for the next run."""
        if self._staging is not None:
            self._staging.close()

    @property
    def features(self) -> list[Feature]:
        """The further features of the records."""
        of_version = self.version.manifest.extra_features
        return [feature for feature in of_version if feature.name not in LABEL_FEATURES]

    @property
    def label_kind(self) -> LabelKind:
        """The kind of the labels: class, multi, targets, mask or none."""
        return self.version.manifest.label_kind

    def feature_columns(self, split: str, names: Sequence[str]) -> FeatureColumns:
        """Return features of the records of a split, in the order of its table.

        Raises:
            UsageError: the version has no such feature.
        """
        return load_features(self.version, self._named(split), names) if names else NO_FEATURES

    def tf(self, split: str, *, epochs: int = 1, **options: Unpack[ExampleOptions]) -> Any:
        """Return a ``tf.data.Dataset`` of (images [B, S, S, C], labels int32 [B]).

        Images have the type of the data set: uint8, uint16 or float32.

        The labels are float32 [B, C] if images have several, with 1 for each that an image has; float32
        [B, T] if they are numbers; masks uint8 [B, S, S] (``version.manifest.mask`` says which number is no
        class); and -1 if images have none.

        Whole images (``image_size=None``) are padded with zeros to the largest of each batch: the first part
        is a dict of "image" [B, largest height, largest width, C] and "image_size" int32 [B, 2], the
        height and width of each (pixels).

        With ``last_batch="pad"`` or ``class_weights`` the elements are (images, labels, weights float32
        [B]): with these weights Keras' mean over all rows is the mean over the examples that are not padding.
        Keras applies them to losses and to ``weighted_metrics``, not to ``metrics``. With MixUp or CutMix the
        labels of classes are distributions over them, float32 [B, C]; others are mixed as they are.

        Each iteration is the next epoch, whoever begins it: ``model.fit``, ``repeat()``, a loop. So
        ``model.fit(dataset, epochs=10)`` trains on ten epochs.

        Args:
            split: "train", "validation" or "test".
            epochs: epochs in each iteration, one after the other.
            **options: batch and image size, epochs, seed, augmentation, order and features; see
                ``ExampleOptions``. With features the first part of an element is a dict of "image" and each
                feature, by name.

        Raises:
            NotFoundError: the version has no such split.
            UsageError: an argument is wrong.
            ConfigError: an option of the order is unknown or wrong, or whole images need too much memory.
        """
        with told_as_arguments():
            records, order, spec = self._asked(split, options)
            self._check_memory(records, spec, order.global_batch_size)
            if spec.augment is not None and spec.augment.mixes and self.label_kind == "none":
                check_has_classes(
                    self.label_kind, self.version.ref, "mixing examples (augment.mixup, cutmix)"
                )
            if not spec.training:  # a cache is for what is read again and again
                spec = replace(spec, reading=self.reading.model_copy(update={"cache": "none"}))
            # "auto" is the exact order here: a caller who names a seed and an epoch expects exactly these.
            streams = spec.training and spec.image_size is not None and self.reading.mode == "streaming"
            choice = choose_mode(self.version, self.reading, spec.data) if streams else EXACT
            opened = open_for_order(records, order, spec, choice, memory=self._memory)
            opening = load("tensorflow", "data.opening")
            pipeline = opening.open_pipeline(opened, num_classes=len(self.classes))
            passes = spec.passes(pipeline.order.steps_per_epoch, epochs)
            return load("tensorflow", "data.pairs").as_pairs(pipeline, passes)

    def batches(
        self,
        split: str,
        *,
        step: int = 0,
        epochs: int = 1,
        rank: int = 0,
        num_ranks: int = 1,
        shares: Sequence[int] | None = None,
        threads: int | None = None,
        **options: Unpack[ExampleOptions],
    ) -> NumpyBatches:
        """Return batches as numpy arrays (``shardmill.training.reading.Batch``), for anything.

        The batches are those of ``tf`` and ``torch``, step by step. Each iteration is the next epoch. To go
        on after batch b of an earlier process, pass ``first_epoch=b.epoch, step=b.step + 1``.

        Args:
            split: "train", "validation" or "test".
            step: the first step of the first iteration; with ``epoch``, of each.
            epochs: epochs in each iteration, one after the other.
            rank: the rank whose slice of each step is read.
            num_ranks: the number of ranks.
            shares: a whole number for each rank, its share of each step; default: equal shares.
            threads: the number of threads that decode; default: one for each CPU of this process.
            **options: batch and image size, epochs, seed, augmentation and order; see ``ExampleOptions``.
                RandAugment, MixUp and CutMix need TensorFlow or PyTorch.

        Raises:
            NotFoundError: the version has no such split.
            UsageError: an argument is wrong.
            ConfigError: an option of the order is unknown or wrong, or whole images need too much memory.
        """
        with told_as_arguments():
            asked = self._asked(split, options)
            return self._batches(asked, (rank, num_ranks, _fixed(shares)), step, epochs, threads)

    def jax(
        self,
        split: str,
        *,
        sharding: Any = None,
        step: int = 0,
        epochs: int = 1,
        rank: int | None = None,
        num_ranks: int | None = None,
        shares: Sequence[int] | None = None,
        threads: int | None = None,
        **options: Unpack[ExampleOptions],
    ) -> JaxBatches:
        """Return batches as arrays on the devices of JAX (``shardmill.training.jax.batches.JaxBatch``).

        They are the batches of ``batches``, and are copied to the devices two batches ahead of use.

        Args:
            split: "train", "validation" or "test".
            sharding: a ``jax.sharding.Sharding`` of the images [B, S, S, C], or a device; the first axis of
                other arrays is divided as that of images. None: the default device. If its devices belong
                to several processes, each reads the rows that its own hold, and arrays are of the whole step.
            step: as of ``batches``.
            epochs: as of ``batches``.
            rank: the rank whose slice of each step is read; default: as ``sharding`` or JAX says.
            num_ranks: the number of ranks; default: as ``sharding`` or JAX says.
            shares: a whole number for each rank, its share of each step; default: equal shares.
            threads: as of ``batches``.
            **options: as of ``batches``, but ``last_batch`` is "pad" by default without training.

        Raises:
            NotFoundError: the version has no such split.
            UsageError: an argument is wrong, or ``sharding`` does not fit the batches.
            ConfigError: an option of the order is unknown or wrong, or whole images need too much memory.
            EnvironmentFault: JAX is not installed.
        """
        wing = load("jax", "batches")
        with told_as_arguments():
            asked = self._asked(split, options, evaluation_last_batch="pad")
            _, order, spec = asked
            placing = wing.Placing.of(sharding, order, spec, (rank, num_ranks, _fixed(shares)))
            made: JaxBatches = wing.JaxBatches(
                self._batches(asked, placing.ranks, step, epochs, threads), placing
            )
            return made

    def grain(
        self,
        split: str,
        *,
        batched: bool = False,
        step: int = 0,
        epochs: int = 1,
        rank: int = 0,
        num_ranks: int = 1,
        shares: Sequence[int] | None = None,
        **options: Unpack[ExampleOptions],
    ) -> GrainSplit:
        """Return data sources and a sampler for Grain (``shardmill.training.grain.sources.GrainSplit``).

        Its elements are the examples of ``batches``, one after the other.

        Args:
            split: "train", "validation" or "test".
            batched: an element is the batch of a step. Grain's ``DataLoader`` deals elements to its workers
                before it batches them, so only these are the same steps with any number of workers.
            step: the first step.
            epochs: the number of epochs, one after the other.
            rank: the rank whose slice of each step is read.
            num_ranks: the number of ranks.
            shares: a whole number for each rank, its share of each step; default: equal shares.
            **options: as of ``batches``.

        Raises:
            NotFoundError: the version has no such split.
            UsageError: an argument is wrong.
            ConfigError: an option of the order is unknown or wrong, or whole images need too much memory.
            EnvironmentFault: Grain is not installed.
        """
        wing = load("grain", "sources")
        with told_as_arguments():
            ranks = rank, num_ranks, _fixed(shares)
            # Grain has threads and processes of its own.
            batches = self._batches(self._asked(split, options), ranks, step, epochs, threads=1)
            made: GrainSplit = wing.open_split(batches, batched=batched)
            return made

    def torch(
        self,
        split: str,
        *,
        rank: int | None = None,
        num_ranks: int | None = None,
        shares: Sequence[int] | None = None,
        preload: bool | CacheForm = False,
        **options: Unpack[TorchOptions],
    ) -> TorchLoader:
        """Return a loader of PyTorch batches of one rank; each iteration is the next epoch.

        The batches of all ranks together hold the same records, step by step, as those of ``tf``. If
        RandAugment, MixUp or CutMix is on, pass each batch to ``augment_on_device`` of the loader.

        Args:
            split: "train", "validation" or "test".
            rank: the rank whose slice of each step is read; default: as ``torch.distributed`` says.
            num_ranks: the number of ranks; default: as ``torch.distributed`` says.
            shares: a whole number for each rank, its share of each step; default: equal shares.
            preload: read all records into memory first, as they are stored (True or "encoded") or
                "decoded"; workers share that memory. It takes the place of a cache.
            **options: batch and image size, seed, augmentation and order (see ``ExampleOptions``), and how
                the loader works (see ``shardmill.training.torch.data.LoaderOptions``). Whole images are not
                augmented.

        Raises:
            NotFoundError: the version has no such split.
            UsageError: an argument is wrong or unknown.
            ConfigError: an option of the order is wrong.
            EnvironmentFault: PyTorch is not installed.
        """
        opening = load("torch", "data.opening")
        with told_as_arguments():
            examples, loading = load("torch", "data.options").divided(options)
            records, order, spec = self._asked(split, examples, evaluation_last_batch="pad")
            own = load("torch", "data.ranks").rank_order(order, rank, num_ranks, _fixed(shares))
            if preload is False:
                records = open_for_order(records, order, spec, memory=self._memory).records
            loader: TorchLoader = opening.open_loader(records, own, spec, loading, preload=preload)
            return loader

    def _asked(
        self, split: str, options: ExampleOptions, evaluation_last_batch: LastBatchOption = "partial"
    ) -> tuple[RecordReader, Order, ExampleSpec]:
        """Return the records, their order and what batches hold, for the arguments of a caller."""
        split = self._named(split)
        spec = ExampleSpec.of_arguments(
            self.version, split, options, self.reading, evaluation_last_batch, self._mixture
        )
        return self.reader(split), spec.order(self.table(split), self.classes), spec

    def _batches(
        self,
        asked: tuple[RecordReader, Order, ExampleSpec],
        ranks: tuple[int, int, tuple[int, ...] | None],
        step: int,
        epochs: int,
        threads: int | None,
    ) -> NumpyBatches:
        """Return the batches of a rank, which is its number, the number of ranks, and their shares."""
        records, order, spec = asked
        if spec.augment is not None:
            spec.augment.refuse_batched(
                "whole batches are augmented with .tf and .torch only",
                "read with one of these, or turn it off and apply it in your own training code",
            )
        own = rank_slice(order.global_batch_size, *ranks)
        self._check_memory(records, spec, own.stop - own.start)
        records = open_for_order(records, order, spec, memory=self._memory).records
        return NumpyBatches(
            BatchMaker(records, spec, threads=threads),
            order,
            spec.passes(order.steps_per_epoch, epochs, step),
            *ranks,
            cut_padding=spec.last_batch == "partial",
            is_weighted=spec.last_batch == "pad" or order.class_weights is not None,
        )

    def _check_memory(self, records: RecordReader, spec: ExampleSpec, rows: int) -> None:
        """Check that batches of so many whole images fit into memory."""
        if spec.image_size is None:
            table = records.table
            budget = self.reading.ram_budget_bytes
            check_whole_images(table.height, table.width, rows, budget, spec.pixel_bytes)


def _fixed(shares: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if shares is None else tuple(shares)
