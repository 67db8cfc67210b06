"""Find the module of a kind of source by its name; types that kinds and the job exchange.

The name is ``source.kind``. A name without a dot is a module of ``shardmill.beam_jobs.sources.kinds`` or a
plugin of the group ``shardmill.sources``, one with dots any module that Python can import. So a kind is found
in every process of every machine without being registered. Errors of Python inside a kind that does not come
with Shardmill are told apart from defects of Shardmill.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, TypeVar

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.config.known_kinds import PAGE, PLUGINS, built_in_kinds, is_built_in
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources import kinds
from shardmill.infra.arguments import checked
from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_names
from shardmill.infra.own_code import OwnCode, faults_of_own_code, is_own
from shardmill.infra.settings import Settings, validate
from shardmill.infra.storage.filesystem import Storage


class Reader(Protocol):
    """Reads images, each by its reference.

    A reader is made in the job and pickled to every process that reads. So it is cheap to make and to pickle,
    and opens containers only when an image of theirs is read. ``SourceFolder`` is the reader of plain files.
    A reader that decodes, and so may crash, has an attribute ``decodes``, which is true.
    """

    def read(self, file: FileRef) -> bytes:
        """Read a whole image, if it has not changed since it was listed.

        The report of an earlier version knows only the URI of an image, its size and time of change. A
        ``file`` that has no ``container`` although it is a member comes from there: it is found by its URI,
        or refused as UNREADABLE.

        Raises:
            SourceFault: it is gone, changed, unreadable or too large. StorageError: this machine is at fault.
        """


@dataclass(frozen=True)
class Workplace:
    """The folders of a run that kinds of sources may write to.

    Attributes:
        spool: folder of unfinished work of the run; it lasts until the version is published.
        dataset: folder of the dataset; files there stay for the next versions.
    """

    spool: Storage
    dataset: Storage


# Workers quarantine the one image whose reading raises these.
_OF_ONE_IMAGE = (ValueError, ArithmeticError, LookupError, TypeError, RuntimeError)


def own_kind(kind: str) -> OwnCode | None:
    """Return the code of a user's own kind or of a plugin; None: the kind is built in, or there is none.

    Raises:
        ConfigError: ``source.kind`` is no name of a module, or the plugin is refused.
    """
    if is_own(kind):
        return OwnCode.named("source.kind", kind, PAGE, "list_inputs")
    return None if is_built_in(kind) else PLUGINS.find(kind)


def faults_of(kind: str, passed: tuple[type[Exception], ...] = ()) -> AbstractContextManager[None]:
    """Turn an unexpected exception from code of others, in a block, into an error that names its line.

    Args:
        kind: ``source.kind``.
        passed: exceptions that stay as they are.
    """
    own = own_kind(kind)
    return faults_of_own_code({} if own is None else {own.module: own.setting}, PAGE, passed)


@dataclass(frozen=True)
class OwnReader:
    """The reader of an own kind or of a plugin, whose unexpected exceptions name it.

    Attributes:
        reader: reader that the kind opened.
        kind: ``source.kind``.
    """

    reader: Reader
    kind: str

    def read(self, file: FileRef) -> bytes:
        """Read a whole image, as ``Reader`` says."""
        with faults_of(self.kind, _OF_ONE_IMAGE):
            return self.reader.read(file)

    def __reduce__(self) -> tuple[Callable[[str, bytes], OwnReader], tuple[str, bytes]]:
        return _unpickled, (self.kind, pickle.dumps(self.reader))


def _unpickled(kind: str, reader: bytes) -> OwnReader:
    _imported(kind)  # first: a worker on another machine has not looked for it yet
    return OwnReader(pickle.loads(reader), kind)


O = TypeVar("O", bound=Settings)  # noqa: E741


# Kinds by the names of other libraries and of files.
_ALSO_CALLED = {
    **dict.fromkeys(("webdataset", "wds", "tar", "zip"), "archive"),
    **dict.fromkeys(("csv", "tsv", "json", "jsonl", "dataframe"), "table"),
    **dict.fromkeys(("huggingface", "hf", "arrow"), "parquet"),
    **dict.fromkeys(("numpy", "npy", "npz", "idx", "mnist"), "arrays"),
    **dict.fromkeys(("web", "http", "https"), "urls"),
    "openimages": "box_table",
    **dict.fromkeys(
        (
            "bdd100k",
            "createml",
            "crowdhuman",
            "datumaro",
            "dota",
            "kitti",
            "labelbox",
            "supervisely",
            "visdrone",
            "vott",
            "widerface",
            "wider_face",
        ),
        "box_files",
    ),
    **dict.fromkeys(("ultralytics", "roboflow", "darknet", "yolov5", "yolov8", "yolo11"), "yolo"),
    **dict.fromkeys(("labelstudio", "label-studio"), "label_studio"),
    **dict.fromkeys(("vgg", "vgg_image_annotator"), "via"),
    "tensorflow_datasets": "tfds",
}


def kind_module(config: PrepareConfig) -> ModuleType:
    """Import the module of the configured kind, and check the options that are meant for it.

    Raises:
        ConfigError: there is no such module, it is no kind of source, or it refuses the options.
    """
    kind = config.source.kind
    module = _imported(kind)
    options_of(config, getattr(module, "Options", Settings), kind)
    return module


@checked
def options_of(config: PrepareConfig, model: type[O], kind: str = "") -> O:
    """Return ``source.options`` as the model of a kind.

    Raises:
        ConfigError: it names an option that the kind does not have, or a value is wrong.
    """
    kind = kind or config.source.kind
    if config.source.options and not model.model_fields:
        raise ConfigError(
            f"source.options: the kind {kind} has no options",
            f"remove {', '.join(sorted(config.source.options))}",
        )
    return validate(model, config.source.options, where=f"source.options of {kind}")


def _imported(kind: str) -> ModuleType:
    own = None if ":" in kind else own_kind(kind)
    if own is not None:
        return own.load()
    if kind not in built_in_kinds():
        known = [*built_in_kinds(), *PLUGINS.names()]
        near = [_ALSO_CALLED[kind]] if kind in _ALSO_CALLED else near_names(kind, known)
        raise ConfigError(
            f"source.kind = {kind!r} is no kind of source",
            f"did you mean {near[0]!r}?"
            if near
            else f"there are: {', '.join(known)}; or name a module of your own, such as package.my_kind",
        )
    return importlib.import_module(f"{kinds.__name__}.{kind}")
