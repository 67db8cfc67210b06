"""Prepare a dataset from arrays in memory, such as those of ``keras.datasets``.

::

    from shardmill import prepare_arrays

    (x_train, y_train), (x_test, y_test) = keras.datasets.cifar10.load_data()
    prepare_arrays({"train": x_train, "test": x_test}, {"train": y_train, "test": y_test}, dataset="cifar10")

The arrays are written beside the datasets, prepared by ``python -m shardmill.beam_jobs.prepare`` in a process
of its own with ``source.kind = "arrays"``, and removed again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import prepare_command
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.arrays.found import FoundArray
from shardmill.beam_jobs.sources.kinds.arrays.roles import pair_arrays
from shardmill.beam_jobs.sources.rows.row_files import RowFile
from shardmill.infra.arguments import checked
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.contract import SPLITS
from shardmill.infra.format.known_features import LabelKind
from shardmill.infra.processes.children import result_of
from shardmill.infra.settings import nested, validate
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import below, check_dataset_name, default_root, uri_of

_FOLDER = ".arrays"  # below the root; a name that no dataset can have
_FEATURE = "feature-"  # begins the roles of further features

Arrays = npt.ArrayLike | Mapping[str, npt.ArrayLike]
_Given = dict[str, dict[str, npt.NDArray[Any]]]  # split, or "" -> role -> array


class ArrayOptions(TypedDict, total=False):
    """The further options of ``prepare_arrays``.

    Attributes:
        label_kind: "class": one class an image; "multi": ``labels`` has a column of 0 and 1 for each class,
            [N, C]; "targets": numbers that a model is to predict, [N] or [N, T]; "none": no labels. Default:
            "class", or "none" without ``labels``.
        class_names: names of the classes whose labels are numbers, in the order of the numbers from 0; of
            kind multi in the order of the columns.
        splits: texts [N]: train, validation or test, empty where it is to be chosen. Only if ``images`` is
            one array.
        groups: numbers or texts [N], keys of images that must stay in one split; or such an array for each
            split.
        features: further features of the records: name -> numbers or texts, [N] or [N, k]; or such an array
            for each split.
        settings: as ``shardmill.prepare`` takes them, but for those of ``source``.
    """

    label_kind: LabelKind
    class_names: Sequence[str]
    splits: npt.ArrayLike | None
    groups: Arrays | None
    features: Mapping[str, Arrays]
    settings: Mapping[str, Any]


@checked
def prepare_arrays(
    images: Arrays,
    labels: Arrays | None = None,
    *,
    dataset: str,
    root: str | Path | None = None,
    **options: Unpack[ArrayOptions],
) -> dict[str, Any]:
    """Prepare a version of a dataset from arrays, or find that the newest version is already up to date.

    The same arrays give the same records. A call that was interrupted publishes nothing; the same call again
    continues its work.

    Args:
        images: uint8 [N, H, W] or [N, H, W, C] with 1, 3 or 4 channels; or such an array for each split.
        labels: numbers or texts, [N] or [N, 1]; or such an array for each split. Others: see ``label_kind``.
        dataset: name of the dataset.
        root: folder of the datasets, a path or a URI; None for $SHARDMILL_ROOT or ./datasets.
        **options: other kinds of labels, names of classes, splits, groups and further features; see
            ``ArrayOptions``.

    Returns:
        What ``shardmill prepare --json`` prints: ``version``, ``num_records`` and so on.

    Raises:
        ConfigError: a shape, a type or a setting is wrong. ShardmillError: see shardmill.infra.errors.
    """
    check_dataset_name(dataset)
    kind = options.get("label_kind", "class" if labels is not None else "none")
    if (labels is None) != (kind == "none"):
        raise UsageError(
            f"label_kind = {kind!r}, and labels are {'missing' if labels is None else 'given'}",
            "give labels exactly if the kind is another than 'none'",
        )
    by_role = {"images": images, "labels": labels}
    by_role |= {"splits": options.get("splits"), "groups": options.get("groups")}
    by_role |= {_FEATURE + name: array for name, array in options.get("features", {}).items()}
    given = _given({role: array for role, array in by_role.items() if array is not None})
    config = _config(given, options.get("class_names", ()), kind, options.get("settings", {}))
    for split, arrays in given.items():
        _check(split, arrays, config)
    location = str(root if root is not None else default_root())
    place = below(location if "://" in location else str(Path(location).expanduser().absolute()), _FOLDER)
    storage = Storage.at(place)
    with storage.exclusive_lock(f"{dataset}.lock", f"preparing {dataset} from arrays"):
        _write(storage.child(dataset), given)
        try:
            written = below(place, dataset)
            source = written if "://" in written else uri_of(written)
            return result_of(prepare_command(source, dataset, location, config))
        finally:
            storage.delete_tree(dataset)


def _given(by_role: Mapping[str, Arrays]) -> _Given:
    """Return the arrays by split and role, after checking that they are given for the same splits.

    Raises:
        UsageError: they are not.
    """
    parts = [value for name, value in by_role.items() if name != "splits"]
    names = [tuple(part) if isinstance(part, Mapping) else ("",) for part in parts]
    if len({frozenset(name) for name in names}) > 1 or ("splits" in by_role and names[0] != ("",)):
        raise UsageError(
            "images, labels, groups and features are not given for the same splits",
            "give one array of each, or a dictionary of each with the same keys; splits only with arrays",
        )
    if unknown := [name for name in names[0] if name not in ("", *SPLITS)]:
        raise UsageError(f"{unknown[0]!r} is no split", f"there are {', '.join(SPLITS)}")
    return {
        split: {
            role: np.asarray(value[split] if isinstance(value, Mapping) else value)
            for role, value in by_role.items()
        }
        for split in names[0]
    }


def _check(split: str, arrays: Mapping[str, npt.NDArray[Any]], config: PrepareConfig) -> None:
    """Check shapes and types before anything is written.

    Raises:
        ConfigError: one is wrong.
    """
    where = RowFile(SourceFolder("."), split or "the arrays", 0)
    found = [
        FoundArray(where, role, array.shape, array.dtype, 0, member=role) for role, array in arrays.items()
    ]
    for array in found:
        if array.dtype.hasobject:
            raise ConfigError(
                f"the {array.name} are Python objects", "give an array of numbers or of texts (dtype str)"
            )
    pair_arrays(found, config.source.columns, config.source.label_kind, splits_from_names=False)


def _config(
    given: _Given, class_names: Sequence[str], kind: LabelKind, settings: Mapping[str, Any]
) -> PrepareConfig:
    values = nested(settings, PrepareConfig)
    if "source" in values:
        raise UsageError("settings hold 'source'", "remove it: the source is given by the arrays")
    arrays = next(iter(given.values()))
    named = {"image": "images", "label": "labels", "split": "splits", "group": "groups"}
    columns: dict[str, Any] = {key: name for key, name in named.items() if name in arrays}
    if class_names:
        columns["class_names"] = tuple(class_names)
    of_features = [name.removeprefix(_FEATURE) for name in arrays if name.startswith(_FEATURE)]
    if of_features:
        columns["features"] = {name: _FEATURE + name for name in of_features}
    source: dict[str, Any] = {"kind": "arrays", "columns": columns}
    if kind != "class":
        source["labels"] = kind
    return validate(PrepareConfig, {**values, "source": source}, where="settings")


def _write(storage: Storage, given: _Given) -> None:
    """Write the arrays as ``.npy`` files that are named by what is in them.

    So the same images have the same URIs in the next call, and their files the same time of change: they are
    known, and an interrupted call continues. Files of other arrays are removed.
    """
    wanted: dict[str, npt.NDArray[Any]] = {}
    for split, arrays in given.items():
        digest = _digest(arrays["images"])
        wanted |= {f"{split}-{role}-{digest}.npy".lstrip("-"): array for role, array in arrays.items()}
    for file in storage.list_files():
        if file.path not in wanted or "images-" not in file.path:
            storage.delete(file.path)
    for name, array in wanted.items():
        if storage.exists(name):
            continue
        with storage.atomic_writer(name) as stream:
            np.lib.format.write_array(cast(Any, stream), np.ascontiguousarray(array), allow_pickle=False)
        local = storage.local_path(name)
        if local is not None:
            os.utime(local, ns=(0, 0))


def _digest(array: npt.NDArray[Any]) -> str:
    """Return a digest (hexadecimal) of shape and values."""
    digest = hashlib.sha256(repr((array.shape, array.dtype.str)).encode())
    for part in array:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:12]
