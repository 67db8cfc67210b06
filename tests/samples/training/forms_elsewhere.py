"""Compares batches of JAX and elements of Grain with those of numpy, for labels and features of every form.

``python -m tests.samples.training.forms_elsewhere JSON``, a list of [root, reference, split, options]. It is
a process of its own, because JAX warns of every later fork of a process that uses it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

from shardmill import Dataset, open_dataset
from shardmill.training.reading.records.columns import Padded

_PARTS = {"image": "images", "label": "labels", "weight": "weights", "size": "sizes", "ordinal": "ordinals"}


def check_forms(*asked: tuple[str, str, str, dict[str, Any]]) -> None:
    """Compare in another process."""
    command = [sys.executable, "-m", __name__, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= len(asked), "so many batches were compared"


def same(found: Any, wanted: Any) -> None:
    """Both are arrays of the same type and values, or lists of any length."""
    if isinstance(wanted, Padded):
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
        return
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def check_jax(batch: Any, plain: Any, *, wide: bool) -> None:
    """Compare a batch; ``wide``: JAX has numbers of 64 bits."""
    import jax

    on_devices = {name: (getattr(batch, name), getattr(plain, name)) for name in [*_PARTS.values()][:4]}
    for name, values in plain.features.items():
        same(batch.features[name], values)
        holds = not isinstance(values, Padded) and (
            values.dtype == np.float32 or (wide and values.dtype.kind == "i")
        )
        assert isinstance(batch.features[name], jax.Array) == holds
    if plain.objects is None:
        assert batch.objects is None
    else:
        objects = zip(batch.objects, plain.objects, strict=True)
        on_devices |= dict(zip(("boxes", "classes", "crowds"), objects, strict=True))
    for found, wanted in on_devices.values():
        assert isinstance(found, jax.Array)
        same(found, wanted)


def check_grain(element: Any, examples: list[Any], plain: Any) -> None:
    """Compare the batch of a step, and its examples."""
    assert list(element["features"]) == list(plain.features)
    for name, part in _PARTS.items():
        same(element[name], getattr(plain, part))
    for name, values in plain.features.items():
        same(element["features"][name], values)
    for row, example in enumerate(examples):
        height, width = example["size"]
        assert example["image"].shape[:2] == (height, width)
        same(example["image"], plain.images[row, :height, :width])
        for name in ("label", "weight", "size", "ordinal"):
            wanted = element[name][row]
            same(example[name], wanted[:height, :width] if wanted.ndim == 2 else wanted)
        for name, values in plain.features.items():
            found = example["features"][name]
            if isinstance(values, Padded):
                same(found, values.values[row, : values.lengths[row]])
            else:
                same(found, np.asarray(values[row], values.dtype))


def check(dataset: Dataset, split: str, options: dict[str, Any], *, wide: bool) -> int:
    """Compare all batches. Return their number."""
    options = {"last_batch": "pad", **options}
    examples = dataset.grain(split, **options).source
    steps = dataset.grain(split, batched=True, **options).source
    compared = 0
    for step, (plain, batch) in enumerate(
        zip(dataset.batches(split, **options), dataset.jax(split, **options), strict=True)
    ):
        check_jax(batch, plain, wide=wide)
        begin = step * len(plain)
        check_grain(steps[step], [examples[begin + row] for row in range(len(plain))], plain)
        compared += 1
    return compared


def main() -> None:
    """Compare what is asked for, the last once more with numbers of 64 bits."""
    import jax

    compared = 0
    asked = json.loads(sys.argv[1])
    for wide, questions in ((False, asked), (True, asked[-1:])):
        jax.config.update("jax_enable_x64", wide)
        for root, ref, split, options in questions:
            compared += check(open_dataset(ref, root=root), split, options, wide=wide)
    assert not {"tensorflow", "keras", "torch", "prefect", "apache_beam"} & set(sys.modules)
    print(compared)


if __name__ == "__main__":
    main()
