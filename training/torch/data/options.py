"""The options of a loader, which ``Dataset.torch`` passes to ``TorchLoader``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

import torch

from shardmill.infra.arguments import at_least, check_options
from shardmill.infra.errors import UsageError
from shardmill.infra.processes.process import num_cpus
from shardmill.training.reading.example_spec import ExampleOptions
from shardmill.training.reading.workers import context_of, follow_loader
from shardmill.training.torch.data.ranks import ranks_on_this_host
from shardmill.training.torch.data.transform import Transform, check_travels

_MAX_AUTO_WORKERS = 16


class LoaderOptions(TypedDict, total=False):
    """The options of a loader.

    Attributes:
        epoch: the epoch of every iteration (default: the next one each time).
        first_epoch: the epoch of the first iteration (default 0).
        num_epochs: the number of epochs, after which iterations are empty (default: no end).
        num_workers: processes that prepare batches; 0: threads of this process; "auto" (the default) is
            ``auto_workers()``.
        prefetch_factor: batches that each worker prepares ahead (default 2).
        pin_memory: put batches into page-locked memory, from which a GPU copies faster (default: no);
            without an accelerator it has no effect.
        persistent_workers: workers live for the whole run (the default); otherwise each epoch starts new
            ones.
        multiprocessing_context: how workers are started (default: as PyTorch does; "spawn" if the shards
            are in an object store, whose client does not survive a fork).
        transform: a function (image uint8 [C, h, w], ``TransformRecord``) -> tensor [D, H, W] that is applied
            to each example by the process that decodes it, after windows, flips, jitter and erasing; spawned
            workers must be able to unpickle it.
    """

    epoch: int | None
    first_epoch: int
    num_epochs: int | None
    num_workers: int | Literal["auto"]
    prefetch_factor: int
    pin_memory: bool
    persistent_workers: bool
    multiprocessing_context: Literal["fork", "spawn", "forkserver"] | None
    transform: Transform | None


class TorchOptions(ExampleOptions, LoaderOptions, total=False):
    """The options of ``Dataset.torch``."""


def divided(options: TorchOptions) -> tuple[ExampleOptions, LoaderOptions]:
    """Divide the options into options of the examples and options of the loader.

    Raises:
        UsageError: an option is unknown.
    """
    checked = check_options(options, TorchOptions, "torch")
    examples = {name: value for name, value in checked.items() if name in ExampleOptions.__annotations__}
    loading = {name: value for name, value in checked.items() if name in LoaderOptions.__annotations__}
    return cast(ExampleOptions, examples), cast(LoaderOptions, loading)


@dataclass(frozen=True, slots=True)
class Options:
    """``LoaderOptions``, complete and checked."""

    epoch: int | None
    first_epoch: int
    num_epochs: int | None
    num_workers: int
    prefetch_factor: int
    pin_memory: bool
    persistent_workers: bool
    multiprocessing_context: str | None
    transform: Transform | None

    def __post_init__(self) -> None:
        at_least(0, num_epochs=self.num_epochs, num_workers=self.num_workers)
        at_least(1, prefetch_factor=self.prefetch_factor)
        if self.epoch is not None and self.num_epochs not in (None, 1):
            raise UsageError(
                f"epoch = {self.epoch} is the epoch of every iteration, and num_epochs = {self.num_epochs}",
                "to read several epochs give first_epoch and num_epochs",
            )
        travels = self.num_workers and self.multiprocessing_context in ("spawn", "forkserver")
        if self.transform is not None and travels:
            check_travels(self.transform)

    def of_data_loader(self) -> dict[str, Any]:
        """Return the options of PyTorch's ``DataLoader``; its own persistence is not needed."""
        common = {"num_workers": self.num_workers}
        common["pin_memory"] = self.pin_memory and torch.accelerator.is_available()
        if not self.num_workers:
            return common
        context = context_of(self.multiprocessing_context)
        workers = {"worker_init_fn": follow_loader, "prefetch_factor": self.prefetch_factor}
        return {**common, **workers, "multiprocessing_context": context}


def complete(given: LoaderOptions) -> Options:
    """Fill in the defaults.

    Raises:
        UsageError: an option is out of range, or cannot be sent to spawned workers.
    """
    workers = given.get("num_workers", "auto")
    return Options(
        epoch=given.get("epoch"),
        first_epoch=given.get("first_epoch", 0),
        num_epochs=given.get("num_epochs"),
        num_workers=auto_workers() if workers == "auto" else workers,
        prefetch_factor=given.get("prefetch_factor", 2),
        pin_memory=given.get("pin_memory", False),
        persistent_workers=given.get("persistent_workers", True),
        multiprocessing_context=given.get("multiprocessing_context"),
        transform=given.get("transform"),
    )


def auto_workers() -> int:
    """Return one worker for each CPU of this rank, at least one: a worker decodes with one thread."""
    return max(1, min(num_cpus() // ranks_on_this_host(), _MAX_AUTO_WORKERS))
