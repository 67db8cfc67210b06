"""Raw images in; accounted-for, balanced, sharded TFRecords and a trained model out.

::

    import shardmill

    shardmill.prepare("photos", dataset="photos", settings={"image.size": 128})
    run = shardmill.train("photos", settings={"run.epochs": 5})
    shardmill.predict(run["run_dir"], "new/")
    for images, labels in shardmill.open_dataset("photos").batches("train", batch_size=32):
        ...

Each name is loaded when it is first used, so importing the package takes no time.
"""

from __future__ import annotations

import sys
from importlib import import_module

# Only in our own commands, not in a program of the user. It comes before other imports, since one of them
# fails if a file of the user hides a library.
if sys.argv and sys.argv[0].rpartition("/")[2] in ("-m", "shardmill"):
    import_module("shardmill.infra.hiding_files").watch_command()

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmill.api import evaluate, predict, prepare, train
    from shardmill.beam_jobs.arrays import prepare_arrays
    from shardmill.infra.errors import (
        AccountingError,
        Cancelled,
        ChildDied,
        ConfigError,
        CorruptDataError,
        DataError,
        Diverged,
        DriftExceeded,
        EnvironmentFault,
        FailureBudgetExceeded,
        FormatVersionError,
        LeakError,
        LockedError,
        NotFoundError,
        ObjectRefused,
        OutOfMemory,
        Preempted,
        PublishConflict,
        RankLost,
        ShardmillError,
        SignatureError,
        StorageError,
        UsageError,
    )
    from shardmill.training.dataset import Dataset, open_dataset
    from shardmill.training.reading import Batch
    from shardmill.training.results.pictures.batch import show_batch

    __version__: str

__all__ = [
    "AccountingError",
    "Batch",
    "Cancelled",
    "ChildDied",
    "ConfigError",
    "CorruptDataError",
    "DataError",
    "Dataset",
    "Diverged",
    "DriftExceeded",
    "EnvironmentFault",
    "FailureBudgetExceeded",
    "FormatVersionError",
    "LeakError",
    "LockedError",
    "NotFoundError",
    "ObjectRefused",
    "OutOfMemory",
    "Preempted",
    "PublishConflict",
    "RankLost",
    "ShardmillError",
    "SignatureError",
    "StorageError",
    "UsageError",
    "__version__",
    "evaluate",
    "open_dataset",
    "predict",
    "prepare",
    "prepare_arrays",
    "show_batch",
    "train",
]

# The module of each name that is no error. Errors are in shardmill.infra.errors.
_HOMES = {
    **dict.fromkeys(("evaluate", "predict", "prepare", "train"), "shardmill.api"),
    **dict.fromkeys(("Dataset", "open_dataset"), "shardmill.training.dataset"),
    "Batch": "shardmill.training.reading",
    "__version__": "shardmill.infra",
    "prepare_arrays": "shardmill.beam_jobs.arrays",
    "show_batch": "shardmill.training.results.pictures.batch",
}


if not TYPE_CHECKING:  # with it, type checkers would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(_HOMES.get(name, "shardmill.infra.errors"))
        except Exception as error:
            named = import_module("shardmill.infra.hiding_files").import_error(error)
            if named is None:
                raise
            raise named from error
        found = module.release() if name == "__version__" else getattr(module, name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
