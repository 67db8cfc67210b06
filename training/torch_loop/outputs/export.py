"""Export the trained model: its weights, and a program that needs no code of this project."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from infra.errors import CorruptDataError
from infra.storage.filesystem import Storage
from training.order import SequentialOrder
from training.reading import BatchMaker
from training.torch_data.batch import to_torch
from training.torch_loop.step import pixels

WEIGHTS_FILE = "model.pt"
PROGRAM_FILE = "model.pt2"
CLASSES_FILE = "classes.json"
# How far a probability of the exported program may be from that of the model, and on how many records.
_TOLERANCE = 1e-3
_CHECKED_RECORDS, _CHECKED_TOGETHER = 512, 32


class _Classifier(nn.Module):  # type: ignore[misc]
    """Takes pixels as they are, and gives probabilities."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Any) -> Any:
        """Return the probabilities, float32 [B, C], of images uint8 [B, channels, S, S]."""
        return self.model(pixels(images)).float().softmax(dim=1)


def export_model(model: Any, classes: list[str], maker: BatchMaker, run_dir: Path) -> dict[str, Any]:
    """Write ``model.pt``, a state dictionary, and ``export/model.pt2``, which ``torch.export.load`` reads.

    The program takes images uint8 [B, channels, S, S], the central squares in the size of the model, and
    gives the probabilities of the classes. It is compared with the model on the first records of a split.

    Args:
        model: the model with the weights to export.
        classes: the names of the classes, by label.
        maker: makes the batches to compare on.
        run_dir: the folder of the run.

    Returns:
        The comparison, JSON-able: ``file``, ``split``, ``num_examples``, ``agreement`` (share of equal
        predictions), ``max_difference`` of a probability, and ``bytes``.

    Raises:
        CorruptDataError: the probabilities of the exported program differ.
    """
    plain = _Classifier(copy.deepcopy(model).to("cpu", memory_format=torch.contiguous_format)).eval()
    with Storage.at(run_dir).atomic_writer(WEIGHTS_FILE) as stream:
        torch.save(plain.model.state_dict(), stream)
    folder = Storage.at(run_dir / "export")
    batches = list(_images(maker))
    example = torch.cat([batches[0], batches[0]])[:2]  # a batch of one would fix the size
    program = torch.export.export(
        plain, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
    )
    with folder.atomic_writer(PROGRAM_FILE) as stream:
        torch.export.save(program, stream)
    folder.write_atomic(CLASSES_FILE, json.dumps(classes).encode("ascii"))
    compared = _compared(plain, load_program(run_dir / "export"), batches)
    path = run_dir / "export" / PROGRAM_FILE
    if compared["max_difference"] > _TOLERANCE:
        raise CorruptDataError(
            f"the exported program {path} gives other probabilities than the model: they differ by up to "
            f"{compared['max_difference']:.2g}",
            "report this with the name of the model",
        )
    split = maker.records.table.split
    return {"file": str(path), "split": split, **compared, "bytes": path.stat().st_size}


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


def _images(maker: BatchMaker) -> Iterator[Any]:
    """Yield the images of the first records of a split: uint8 [b, channels, S, S]."""
    num_records = len(maker.records.table)
    order = SequentialOrder(num_records, min(_CHECKED_TOGETHER, num_records))
    for step in range(min(order.steps_per_epoch, -(-_CHECKED_RECORDS // _CHECKED_TOGETHER))):
        batch = to_torch(maker.make(order.step(0, step)))
        yield batch.images[batch.weights > 0].contiguous()


@torch.no_grad()  # type: ignore[untyped-decorator]
def _compared(model: Any, program: Any, batches: list[Any]) -> dict[str, Any]:
    pairs = [(model(images), program(images)) for images in batches]
    equal = sum(int((ours.argmax(1) == theirs.argmax(1)).sum()) for ours, theirs in pairs)
    count = sum(len(images) for images in batches)
    return {
        "num_examples": count,
        "agreement": equal / count,
        "max_difference": max(float((ours - theirs).abs().max()) for ours, theirs in pairs),
    }
