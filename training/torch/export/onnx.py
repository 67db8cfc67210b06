"""Compare exported forms with the model of PyTorch, and export it as ONNX. Needs the extra ``onnx``.

The file takes what an ONNX file of a run with TensorFlow takes, so that programs need not know the framework.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from shardmill.infra import progress as events
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.order import SequentialOrder
from shardmill.training.reading import BatchMaker
from shardmill.training.tasks.task import FormMeasure
from shardmill.training.torch.data.batch import to_torch

# How far a probability of an exported form may be from that of the model; of numbers, in their deviations.
TOLERANCE = 1e-3
_TOGETHER = 32


def images_of(maker: BatchMaker, most_records: int | None = None) -> Iterator[Any]:
    """Yield the images of the first records of a split, or of all: uint8 [b, channels, S, S]."""
    num_records = len(maker.records.table)
    order = SequentialOrder(num_records, min(_TOGETHER, num_records))
    steps = range(order.steps_per_epoch)
    for step in itertools.islice(steps, most_records and -(-most_records // _TOGETHER)):
        batch = to_torch(maker.make(order.step(0, step)))
        yield batch.images[batch.weights > 0].contiguous()


@torch.no_grad()  # type: ignore[untyped-decorator]
def compared(
    model: Callable[[Any], Any],
    other: Callable[[Any], Any],
    batches: Iterable[Any],
    measure: FormMeasure,
) -> dict[str, Any]:
    """Return ``num_examples``, ``agreement`` (share of equal predictions) and ``max_difference``.

    Args:
        model: images -> probabilities or numbers [b, K].
        other: the same of the exported form.
        batches: batches of images.
        measure: how both are compared.
    """
    equal, count, largest = 0, 0, 0.0
    events.stage("compare", None)
    for images in batches:
        ours, theirs = model(images).numpy(), other(images).numpy()
        equal += int(measure.agree(ours, theirs).sum())
        count += len(images)
        events.progress("compare", count, None)
        largest = float(np.maximum(largest, measure.differences(ours, theirs).max()))  # keeps NaN
    return {"num_examples": count, "agreement": equal / count, "max_difference": largest}


_FILE = "model.onnx"
_INPUT = "images"


class _ChannelsLast(nn.Module):  # type: ignore[misc]
    """Takes images as they are decoded."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.program = program

    def forward(self, images: Any) -> Any:
        """Return the output, float32 [B, K], for images uint8 [B, S, S, C]."""
        return self.program(images.permute(0, 3, 1, 2))


def write_onnx(program: Any, measure: FormMeasure, maker: BatchMaker, run_dir: Path) -> dict[str, Any]:
    """Write ``model.onnx``, unless it does not do what the model does.

    Input ``images``: uint8 [N, S, S, C], decoded; N is any number. Output: float32 [N, K].

    Args:
        program: images uint8 [B, C, S, S] -> probabilities or numbers, on the CPU.
        measure: names the output, and compares the file with the model.
        maker: makes the batches of the split to compare on, of which all are taken.
        run_dir: the folder of the run.

    Returns:
        Path, size (bytes) and comparison, JSON-able; or the ``problem`` for which there is no file.
    """
    split = maker.records.table.split
    events.log(f"export onnx, and compare it on {split}")
    try:
        content = _convert(program, next(iter(images_of(maker))), measure.output_name)
        found = compared(program, _runtime(content), images_of(maker), measure)
    except Exception as error:  # noqa: BLE001  converters raise errors of every kind; the run is sound
        found = {"problem": f"{type(error).__name__}: {error}"}
    figures: dict[str, Any] = {"split": split, **found}
    if "problem" not in found and not found["max_difference"] <= TOLERANCE:
        figures["problem"] = f"{measure.output_name} differ by up to {found['max_difference']:.3g}"
    if "problem" in figures:
        events.log(f"no onnx was exported: {figures['problem']}", level="warning")
        return figures
    Storage.at(run_dir).write_atomic(_FILE, content)
    return {"path": str(run_dir / _FILE), "size_bytes": len(content), **figures}


def _convert(program: Any, images: Any, output_name: str) -> bytes:
    example = torch.cat([images, images])[:2].permute(0, 2, 3, 1).contiguous()  # one would fix the size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.onnx.export(
            _ChannelsLast(program).eval(),
            (example,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=[_INPUT],
            output_names=[output_name],
            external_data=False,
            verbose=False,
        )
    content: bytes = made.model_proto.SerializeToString()
    return content


def _runtime(content: bytes) -> Any:
    """Return a function that runs an ONNX file on the CPU: uint8 [b, C, S, S] -> float32 [b, K]."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(images: Any) -> Any:
        given = images.permute(0, 2, 3, 1).contiguous().numpy()
        return torch.from_numpy(session.run(None, {_INPUT: given})[0])

    return run
