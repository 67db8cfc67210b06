"""A directory of TensorFlow Datasets: the folder of one version, with ``dataset_info.json``.

Splits, files and the number of records come from ``dataset_info.json``, the features from ``features.json``,
the names of the classes from ``label.labels.txt``. Each record is an input,
``mnist-train.tfrecord-00000-of-00001#row=0000017``. A record that the metadata count and that no file holds
is an input too, and is quarantined. TensorFlow is not needed.

    metadata   the splits and their files, and the features that records have
    roles      which feature is the image, which the label, and which the records get beside them
    objects    boxes with classes, as objects
    shards     the records of a file
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig, PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.class_names import class_numbers
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, SourceFault
from shardmill.beam_jobs.sources.kinds.array_record import ArrayRecords
from shardmill.beam_jobs.sources.kinds.tfds.metadata import (
    FEATURES_FILE,
    INFO_FILE,
    DatasetInfo,
    Shard,
    leaves_of,
    read_info,
    read_json,
)
from shardmill.beam_jobs.sources.kinds.tfds.roles import Roles, roles_of
from shardmill.beam_jobs.sources.kinds.tfds.shards import ShardRows, read_shard, records_of
from shardmill.beam_jobs.sources.kinds.tfrecord import Records
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.roles import SPLIT_WORDS
from shardmill.beam_jobs.sources.rows.examples import image_in
from shardmill.beam_jobs.sources.rows.listing import Contents, list_contents, walk_files
from shardmill.beam_jobs.sources.rows.objects import with_objects
from shardmill.beam_jobs.sources.rows.reading import RowReader, Rows
from shardmill.beam_jobs.sources.rows.row_files import RowFile, RowFileBroken
from shardmill.infra.errors import ConfigError, CorruptDataError, NotFoundError, UsageError
from shardmill.infra.format.known_features import WORDS
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

_SHARDS_LOOKED_INTO, _RECORDS_LOOKED_AT = 4, 32  # for the first images


@dataclass(frozen=True)
class _Dataset:
    info: DatasetInfo
    roles: Roles

    @classmethod
    def of(cls, folder: SourceFolder, settings: SourceConfig) -> _Dataset:
        """Read the metadata."""
        info = read_info(folder)
        leaves = leaves_of(read_json(folder, FEATURES_FILE))
        return cls(info, roles_of(leaves, info.label_key, settings, folder))


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every record of a dataset, with its label, split and further features.

    Every file is read once for that, since labels stand beside the images.

    Raises:
        NotFoundError: there is no such folder, no metadata in it, or no record.
        ConfigError: the metadata are wrong, or the settings do not fit them.
    """
    settings = config.source
    dataset = _Dataset.of(folder, settings)
    _check_labels(dataset, settings)
    places = _places_of_splits(dataset.info, settings)
    files, warnings = walk_files(folder, config)
    by_uri = {file.uri: file for file in files}
    log(_in_words(dataset))
    found, others = [], dict[str, str]()
    for shard in dataset.info.shards:
        file = by_uri.get(shard.uri)
        if places[shard.split] == "none":
            others[shard.uri] = f"source.tfds.splits leaves out the split {shard.split}"
        elif not (file is None and folder.only is not None) and not (file and file.ignored_by):
            found.append(_read(folder, shard, file, dataset, settings.columns, places[shard.split]))
            warnings += _warnings_of(shard, found[-1], file)
    warnings += [f"the feature {key!r} is left out: {why}" for key, why in dataset.roles.left_out.items()]
    contents = Contents(files, [one.rows for one in found], {}, others, warnings)
    # The metadata say what names of files may say, and which type a feature has.
    own = {
        "rows": settings.rows.model_copy(update={"splits_from_names": False}),
        "columns": settings.columns.model_copy(update={"features": dataset.roles.asked()}),
    }
    source = settings.model_copy(update=own)
    if dataset.roles.objects is None:
        return list_contents(folder, config.model_copy(update={"source": source}), contents)
    source = source.model_copy(update={"labels": "none"})  # the labels of objects come from features instead
    listing = list_contents(folder, config.model_copy(update={"source": source}), contents)
    names = class_numbers(settings.columns, folder)
    classes = [names[number] for number in range(len(names))] or list(dataset.roles.classes)
    return with_objects(listing, dataset.roles.object_columns, classes)


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> RowReader:
    """Open the reader of records."""
    return RowReader(folder, _Shards(config.source), by_number=False)


class _Shards:
    """Opens shards. The metadata are read with the first one: a reader is also made where the source is gone.

    Args:
        settings: settings of the source.
    """

    def __init__(self, settings: SourceConfig) -> None:
        self._settings = settings
        self._dataset: _Dataset | None = None

    def __call__(self, file: RowFile) -> Rows:
        try:
            dataset = self._dataset or _Dataset.of(file.folder, self._settings)
        except (NotFoundError, ConfigError) as error:
            raise RowFileBroken(error.message) from error
        self._dataset = dataset
        if dataset.info.file_format == "array_record":
            return ArrayRecords(file, dataset.roles.image)
        return Records(file, dataset.roles.image, "none", scratch=None)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise the metadata of one version, and say which kind of labels its records have.

    Raises:
        UsageError: there are several versions, or the one lies in a folder below.
    """
    if not {INFO_FILE, FEATURES_FILE} <= set(glance.files):
        folders = [uri.rpartition("/")[0] for uri in glance.files if uri.endswith(f"/{INFO_FILE}")]
        described = [folder for folder in folders if f"{folder}/{FEATURES_FILE}" in glance.files]
        if described and not glance.images:
            raise UsageError(
                f"{glance.folder.uri} has datasets of TensorFlow Datasets in folders below: "
                f"{', '.join(described[:8])}",
                f"give the folder of one of them: {glance.folder.uri}/{described[-1]}",
            )
        return None
    dataset = _Dataset.of(glance.folder, settings)
    labels = {} if dataset.roles.labels == "class" else {"labels": dataset.roles.labels}
    return Recognised(f"{INFO_FILE} describes {dataset.info.name}", labels, is_certain=True)


def first_images(folder: SourceFolder, config: PrepareConfig) -> Iterator[bytes]:
    """Yield some of the images, to see how they are encoded."""
    dataset = _Dataset.of(folder, config.source)
    for shard in dataset.info.shards[:_SHARDS_LOOKED_INTO]:
        records = records_of(RowFile(folder, shard.uri, 0), dataset.info.file_format)
        try:
            for _, payload, fault in islice(records, _RECORDS_LOOKED_AT):
                if fault is None:
                    yield image_in(payload, dataset.roles.image)
        except (RowFileBroken, SourceFault, CorruptDataError):
            continue  # the listing says it


def _check_labels(dataset: _Dataset, settings: SourceConfig) -> None:
    given = dataset.roles.labels
    if settings.label_kind != given:
        raise ConfigError(
            f"{dataset.info.name} has {WORDS[given]}, and source.labels = {settings.label_kind!r}",
            f"--set source.labels={given}; --as-is and --source-kind auto set it",
        )
    columns = settings.columns
    if dataset.roles.objects is not None and (columns.drop_labels or columns.merge_labels):
        raise ConfigError(
            f"{dataset.info.name} has objects, and drop_labels and merge_labels are for images",
            "leave them out, or write annotations of COCO, of which they name the classes of objects",
        )


def _places_of_splits(info: DatasetInfo, settings: SourceConfig) -> Mapping[str, str]:
    """Return split of the dataset -> train, validation, test, chosen or none.

    Raises:
        ConfigError: a name does not tell it.
    """
    names = list(dict.fromkeys(shard.split for shard in info.shards))
    given = settings.tfds.splits
    if unknown := sorted(set(given) - set(names)):
        raise ConfigError(f"source.tfds.splits names {unknown[0]!r}, and {info.name} has {', '.join(names)}")
    places = {}
    for name in names:
        free = None if settings.rows.splits_from_names else "chosen"
        place = given.get(name) or free or SPLIT_WORDS.get(name.lower())
        if place is None:
            raise ConfigError(
                f"{info.name} has a split {name!r}, which is neither train, validation nor test by its name",
                f"say what it becomes: --set source.tfds.splits.{name}=train, or chosen, or none",
            )
        places[name] = place
    return places


def _read(
    folder: SourceFolder,
    shard: Shard,
    file: FoundFile | None,
    dataset: _Dataset,
    settings: ColumnsConfig,
    place: str,
) -> ShardRows:
    """Read a shard, with its split."""
    place_in = RowFile(folder, shard.uri, file.ref.mtime_ns if file else 0)
    found = read_shard(
        place_in,
        shard,
        dataset.info.file_format,
        dataset.roles,
        group=settings.group,
        split=settings.split,
    )
    return replace(found, rows=replace(found.rows, split=None if place == "chosen" else place))


def _warnings_of(shard: Shard, found: ShardRows, file: FoundFile | None) -> list[str]:
    if found.more:
        return [f"{shard.uri} has {found.more:,} records more than {INFO_FILE} counts; all are read"]
    if file is None:
        return [f"{shard.uri} is missing, and with it {shard.num_records:,} records"]
    faults = found.rows.faults
    lost = pc.sum(pc.is_valid(faults)).as_py() or 0 if faults is not None else 0
    return [f"{shard.uri}: {lost:,} of {shard.num_records:,} records cannot be used"] if lost else []


def _in_words(dataset: _Dataset) -> str:
    roles = dataset.roles
    label = f"labels in {roles.label!r}" if roles.label else "no labels"
    own = {leaf.key for leaf in roles.objects.leaves} if roles.objects is not None else set()
    if roles.objects is not None:
        label = f"objects in {roles.objects.boxes.key!r} and {roles.objects.label.key!r}"
    more = ", ".join(column.key for column in roles.columns if column.key not in own)
    features = f", further features: {more}" if more else ""
    return f"{dataset.info.name} of TensorFlow Datasets: images in {roles.image!r}, {label}{features}"
