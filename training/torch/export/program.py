"""Export the trained model: its weights, and a program that needs no code of this project."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from shardmill.infra.errors import CorruptDataError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.config.export import ExportFormat
from shardmill.training.export.model_input import ModelInput
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.decode import Pixels
from shardmill.training.run.ending.source_check import OfFile, Written
from shardmill.training.tasks.task import Task
from shardmill.training.torch.export.onnx import TOLERANCE, compared, images_of, write_onnx
from shardmill.training.torch.step import pixels

WEIGHTS_FILE = "model.pt"
PROGRAM_FILE = "model.pt2"
CLASSES_FILE = "classes.json"
_CHECKED_RECORDS = 512


class _Served(nn.Module):  # type: ignore[misc]
    """Takes pixels as they are, and gives probabilities, or numbers in their unit."""

    def __init__(self, model: Any, task: Task, output_name: str) -> None:
        super().__init__()
        self.model = model
        self._task = task
        self._output_name = output_name

    def forward(self, images: Any) -> Any:
        """Return the decoded output, float32 [B, K], for images uint8 [B, channels, S, S]."""
        return self._task.served(self.model(pixels(images)).float())[self._output_name]


def export_model(
    model: Any,
    task: Task,
    names: list[str],
    maker: BatchMaker,
    run_dir: Path,
    formats: Sequence[ExportFormat] = (),
) -> Written:
    """Write ``model.pt``, a state dictionary, and ``export/model.pt2``, which ``torch.export.load`` reads.

    The program takes images uint8 [B, channels, S, S], as ``model-input.json`` says, and gives the
    probabilities of the classes, or numbers in their unit. It is compared with the model on the first records
    of a split.

    Args:
        model: the model with the weights to export.
        task: the task that it learned.
        names: the names of the classes or targets.
        maker: makes the batches to compare on.
        run_dir: the folder of the run.
        formats: further forms: "onnx".

    Returns:
        The comparison of each form by its name; that of ``torch``: ``file``, ``split``, ``num_examples``,
        ``agreement`` (share of equal predictions), ``max_difference`` of a probability, and ``bytes``.

    Raises:
        CorruptDataError: the probabilities of the exported program differ.
    """
    measure = task.form_measure()
    assert measure is not None, "PyTorch trains no task without exported forms"
    on_cpu = copy.deepcopy(model).to("cpu", memory_format=torch.contiguous_format)
    plain = _Served(on_cpu, task, measure.output_name).eval()
    with Storage.at(run_dir).atomic_writer(WEIGHTS_FILE) as stream:
        torch.save(plain.model.state_dict(), stream)
    folder = Storage.at(run_dir / "export")
    first = next(images_of(maker))
    example = torch.cat([first, first])[:2]  # a batch of one would fix the size
    program = torch.export.export(
        plain, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
    )
    with folder.atomic_writer(PROGRAM_FILE) as stream:
        torch.export.save(program, stream)
    folder.write_atomic(CLASSES_FILE, dump_json(names).encode("ascii"))
    found = compared(plain, load_program(run_dir / "export"), images_of(maker, _CHECKED_RECORDS), measure)
    path = run_dir / "export" / PROGRAM_FILE
    if not found["max_difference"] <= TOLERANCE:
        raise CorruptDataError(
            f"the exported program {path} gives other {measure.output_name} than the model: they differ "
            f"by up to {found['max_difference']:.2g}",
            "report this with the name of the model",
        )
    split = maker.records.table.split
    written = {"torch": {"file": str(path), "split": split, **found, "bytes": path.stat().st_size}}
    if "onnx" in formats:
        written["onnx"] = write_onnx(plain, measure, maker, run_dir)
    given = ModelInput.of(maker.records, maker.spec)
    given.write(run_dir)

    def open_program() -> OfFile:
        run = _on_arrays(load_program(run_dir / "export"))
        return lambda data: run(given.see(data).pixels[np.newaxis])[0]

    return Written(written, given, _on_arrays(plain), open_program, measure)


def open_predictor(
    folder: Path, outputs: Sequence[str]
) -> Callable[[Pixels], dict[str, npt.NDArray[np.float32]]]:
    """Return a function from images uint8 [n, S, S, C] to probabilities or numbers, float32 [n, K].

    Args:
        folder: the folder of the exported model.
        outputs: the name by which its one output is wanted.

    Raises:
        CorruptDataError: it is missing or damaged.
    """
    run = _on_arrays(load_program(folder))
    return lambda images: dict.fromkeys(outputs, run(images))


def _on_arrays(program: Any) -> Callable[[Pixels], npt.NDArray[np.float32]]:
    """Return a program of images uint8 [n, C, S, S] as a function of arrays uint8 [n, S, S, C]."""

    def run(images: Pixels) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            values = program(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous())
        return np.asarray(values.numpy(), np.float32)

    return run


def load_program(folder: Path) -> Any:
    """Return the exported program of a run as a function.

    Raises:
        CorruptDataError: it is missing or damaged.
    """
    path = folder / PROGRAM_FILE
    try:
        return torch.export.load(path).module()
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise CorruptDataError(
            f"the exported model {path} cannot be loaded: {error}", "train again with run.fresh=true"
        ) from error
