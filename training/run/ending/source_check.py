"""Compare what was exported, on source files of a split, with the model on their records. No framework."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra import progress as events
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.readable import counted
from shardmill.training.export.model_input import ModelInput
from shardmill.training.order import Passes, SequentialOrder
from shardmill.training.reading import BatchMaker, RecordReader
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.reading.decode import Pixels
from shardmill.training.reading.records.record_ids import id_number
from shardmill.training.results.predictions.file import predictions_file, read_predictions
from shardmill.training.results.report.gallery import source_path
from shardmill.training.tasks.task import FormMeasure

_MOST_FILES = 128
_BATCH = 4  # images that the model takes together: few, as it may have values of each pixel
_STAGE = "compare with files"

Values = Callable[[Pixels], npt.NDArray[Any]]  # images uint8 [b, S, S, C] -> [b, ...]
OfFile = Callable[[bytes], npt.NDArray[Any]]  # an image file -> [...]; raises what its framework raises


@dataclass(frozen=True, slots=True)
class Written:
    """What a run exported.

    Attributes:
        forms: what is known of each form by its name, JSON-able.
        given: what the model sees of image files.
        model: returns the output that is compared, for the pixels of records.
        open: opens the exported model.
        measure: compares both; None: the outputs of the task are not compared, only the pixels.
    """

    forms: dict[str, dict[str, Any]]
    given: ModelInput
    model: Values
    open: Callable[[], OfFile]
    measure: FormMeasure | None


def checked_on(readers: Mapping[str, RecordReader]) -> RecordReader:
    """Return the records on which exports are compared: of the test split, if there is one."""
    return next(readers[split] for split in ("test", "validation", "train") if split in readers)


def check_on_sources(written: Written, records: RecordReader, run_dir: Path) -> dict[str, Any]:
    """Compare the exported model on source files with the model on the records that were made of them.

    Args:
        written: what was exported.
        records: records of a split that was evaluated; at most 128 are compared.
        run_dir: the folder of the run, with the predictions of the split, which name the source files.

    Returns:
        JSON-able: ``split``, ``num_files`` that were compared, ``not_read``: reason -> number of the files
        that could not be, ``same_pixels`` as their records: their number, ``refused``: message -> number of
        the files that the export does not take; ``agreement``, the share of the others that are predicted
        alike, and ``max_difference``.
    """
    files, not_read = _readable(records, run_dir)
    found: dict[str, Any] = {"split": records.table.split, "num_files": len(files), "not_read": not_read}
    if not files:
        return found
    measure = written.measure
    of_file = None if measure is None else written.open()
    same, refused, agree, differences = 0, Counter[str](), list[bool](), list[float]()
    events.stage(_STAGE, len(files))
    for ordinals, images in _pixels(written.given, records, files):
        outputs = None if measure is None else np.asarray(written.model(images))
        for row, ordinal in enumerate(ordinals):
            data = files[ordinal].read_bytes()
            same += _has_pixels(written.given, data, images[row])
            if measure is None or of_file is None or outputs is None:
                continue
            try:
                values = of_file(data)[np.newaxis]
            except Exception as error:  # noqa: BLE001  each framework has its own errors
                refused[_first_line(error)] += 1
            else:
                wanted = outputs[row : row + 1]
                agree.append(bool(measure.agree(values, wanted)[0]))
                differences.append(float(measure.differences(values, wanted).max()))
        events.progress(_STAGE, len(agree) + sum(refused.values()), len(files))
    found |= {"same_pixels": same, "refused": dict(refused)}
    if agree:
        found |= {"agreement": sum(agree) / len(agree), "max_difference": max(differences)}
    return found


def notes_on(found: dict[str, Any]) -> list[str]:
    """Return what a reader of the result should know of the comparison with source files."""
    if not found["num_files"]:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in found["not_read"].items())
        events.log(f"the export was not compared on source files of {found['split']}: {reasons or 'none'}")
        return []
    files = f"{counted(found['num_files'], 'source file')} of {found['split']}"
    notes = []
    if (others := found["num_files"] - found["same_pixels"]) > 0:
        notes.append(f"{others:,} of {files} give other pixels than their records: predictions may differ")
    for message, number in found["refused"].items():
        notes.append(f"the export refuses {number:,} of {files}: {message}")
    if found.get("agreement", 1.0) < 1.0:
        notes.append(
            f"the export predicts {found['agreement']:.1%} of {files} as the model predicts their records"
        )
    return notes


def _readable(records: RecordReader, run_dir: Path) -> tuple[dict[int, Path], dict[str, int]]:
    """Return ordinal -> source file of some records, and why the files of others cannot be read."""
    table, named = records.table, dict[int, tuple[str, str]]()
    path = run_dir / predictions_file(table.split)
    every, row = max(1, len(table) // _MOST_FILES), 0
    for rows in read_predictions(path, ["id", "source_uri"]) if path.is_file() else ():
        chosen = rows.take(list(range(-row % every, rows.num_rows, every))).to_pylist()
        named |= {id_number(one["id"]): (one["id"], one["source_uri"]) for one in chosen}
        row += rows.num_rows
    files, not_read = {}, Counter[str]()
    for ordinal in np.flatnonzero(np.isin(table.id, np.array(list(named), np.uint64)))[:_MOST_FILES].tolist():
        name, uri = named[int(table.id[ordinal])]
        file = source_path(records.split.version_of(ordinal).manifest.source, uri)
        reason = _why_not(file, uri, name)
        if reason is None and file is not None:
            files[ordinal] = file
        else:
            not_read[str(reason)] += 1
    return files, dict(not_read)


def _why_not(path: Path | None, uri: str, record_id: str) -> str | None:
    """Return why the source file of a record cannot be compared; None: it can be."""
    if path is None:
        return "remote"
    try:
        data = path.read_bytes()
    except OSError:
        return "inside other files" if "#" in uri else "gone"
    return None if hashlib.sha256(data).hexdigest().startswith(record_id) else "changed"


def _pixels(
    given: ModelInput, records: RecordReader, files: Mapping[int, Path]
) -> Iterator[tuple[list[int], Pixels]]:
    """Yield the ordinals of some records that have files, and their pixels as evaluation sees them."""
    ordinals = np.array(sorted(files), np.int64)
    order = SequentialOrder(len(records.table), min(_BATCH, ordinals.size), records=ordinals)
    maker = BatchMaker(records, given.examples)
    for batch in NumpyBatches(maker, order, Passes(range(order.steps_per_epoch)), cut_padding=True):
        yield batch.ordinals.tolist(), batch.images
    maker.close()


def _has_pixels(given: ModelInput, data: bytes, pixels: Pixels) -> bool:
    try:
        return np.array_equal(given.see(data).pixels, pixels)
    except ImageRejected:
        return False


def _first_line(error: Exception) -> str:
    """Return the message of an exported model without what its framework adds."""
    lines = [line.strip(" \t[]'\"") for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "not decoded here" in line), lines[0] if lines else "")
    return told or type(error).__name__
