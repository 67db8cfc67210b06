"""The Python programs of the README work unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardmill import training
from tests.samples.datasets.published import coloured, publish

README = Path(__file__).parents[3] / "README.md"


# Keras says this of every tf.data.Dataset that `fit` is given without shuffle=False.
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_the_snippet_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras = pytest.importorskip("keras")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    snippet = next(block for block in blocks if "open_dataset" in block)
    publish(tmp_path / "datasets", coloured({"train": {"a": 40, "b": 40}}), name="photos")
    monkeypatch.chdir(tmp_path)
    model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    exec(snippet, {"model": model})


def test_the_public_names_are_there() -> None:
    from shardmill.training.dataset import Dataset, open_dataset

    assert (training.Dataset, training.open_dataset) == (Dataset, open_dataset)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = training.nothing


def test_the_package_alone_loads_nothing_heavy() -> None:
    code = "import sys, shardmill.training; sys.exit('pyarrow' in sys.modules or 'tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
