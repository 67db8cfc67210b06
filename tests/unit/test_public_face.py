"""The names that ``import shardmill`` gives: which there are, their arguments, and what the import loads."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import shardmill
from shardmill.infra import errors
from tests.samples.datasets.published import coloured, publish

ROOT = Path(__file__).parents[2]
FACE = ROOT / "shardmill" / "__init__.py"

SIGNATURES = {
    "open_dataset": "(ref: str | Sequence[str], root: str | Path | None = None, *,"
    " weights: Sequence[float] | None = None, temperature: float | None = None,"
    " end: MixtureEnd | int | None = None, classes: Mapping[str, str] | None = None,"
    " drop_near_duplicates: bool = False, missing_classes: Missing | None = None,"
    " **reading: Unpack[ReadingOptions]) -> Dataset",
    "prepare": "(source: str | Path, *, dataset: str, root: str | Path | None = None,"
    " settings: Mapping[str, Any] | None = None, config: str | Path | None = None, recipe: str | None = None,"
    " as_is: bool = False, dry_run: bool = False) -> dict[str, Any]",
    "prepare_arrays": "(images: Arrays, labels: Arrays | None = None, *, dataset: str,"
    " root: str | Path | None = None, **options: Unpack[ArrayOptions]) -> dict[str, Any]",
    "show_batch": "(batch: Any, dataset: Dataset | None = None, *, classes: Sequence[str] | None = None,"
    " count: int = 12, value_range: Sequence[float] | None = None,"
    " mean: float | Sequence[float] | None = None, std: float | Sequence[float] | None = None)"
    " -> BatchPictures",
    "train": "(dataset: str | Sequence[str], *, root: str | Path | None = None,"
    " runs: str | Path | None = None,"
    " settings: Mapping[str, Any] | None = None, config: str | Path | None = None,"
    " recipe: str | None = None) -> dict[str, Any]",
    "evaluate": "(run: str | Path, *, split: str = 'test', dataset: str | None = None,"
    " root: str | Path | None = None, runs: str | Path | None = None) -> dict[str, Any]",
    "predict": "(run: str | Path, paths: str | Path | Sequence[str | Path], *,"
    " out: str | Path | None = None, overlays: bool = False, root: str | Path | None = None,"
    " runs: str | Path | None = None) -> dict[str, Any]",
}
METHODS = {
    "tf": "(self, split: str, *, epochs: int = 1, **options: Unpack[ExampleOptions]) -> Any",
    "batches": "(self, split: str, *, step: int = 0, epochs: int = 1, rank: int = 0, num_ranks: int = 1,"
    " shares: Sequence[int] | None = None, threads: int | None = None,"
    " **options: Unpack[ExampleOptions]) -> NumpyBatches",
    "torch": "(self, split: str, *, rank: int | None = None, num_ranks: int | None = None,"
    " shares: Sequence[int] | None = None, preload: bool | CacheForm = False,"
    " **options: Unpack[TorchOptions]) -> TorchLoader",
    "jax": "(self, split: str, *, sharding: Any = None, step: int = 0, epochs: int = 1,"
    " rank: int | None = None, num_ranks: int | None = None, shares: Sequence[int] | None = None,"
    " threads: int | None = None,"
    " **options: Unpack[ExampleOptions]) -> JaxBatches",
    "grain": "(self, split: str, *, batched: bool = False, step: int = 0, epochs: int = 1, rank: int = 0,"
    " num_ranks: int = 1, shares: Sequence[int] | None = None, **options: Unpack[ExampleOptions])"
    " -> GrainSplit",
    "query": "(self, text: str) -> Dataset",
    "to_arrow": "(self, columns: Sequence[str] | None = None) -> Any",
    "table": "(self, split: str) -> SplitTable",
    "reader": "(self, split: str, order: Order | None = None) -> RecordReader",
    "close": "(self) -> None",
}


def test_the_public_names_are_these() -> None:
    of_errors = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.ShardmillError) and value.__doc__
    } - {"DivergedElsewhere"}
    assert set(shardmill.__all__) == {*SIGNATURES, "Batch", "Dataset", "__version__", *of_errors}
    found = {name: getattr(shardmill, name) for name in shardmill.__all__ if name != "__version__"}
    assert [value.__name__ for value in found.values()] == [*found]
    assert set(shardmill.__all__) <= set(dir(shardmill))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = shardmill.nothing


def test_the_arguments_are_these() -> None:
    def text(function: object) -> str:
        return str(inspect.signature(function)).replace("'", "").replace("= test", "= 'test'")  # type: ignore[arg-type]

    assert {name: text(getattr(shardmill, name)) for name in SIGNATURES} == SIGNATURES
    assert {name: text(getattr(shardmill.Dataset, name)) for name in METHODS} == METHODS
    fields = ["images", "sizes", "labels", "weights", "ordinals", "positions", "epoch", "step", "features"]
    assert [field.name for field in dataclasses.fields(shardmill.Batch)][: len(fields)] == fields


def test_type_checkers_and_editors_see_what_python_loads() -> None:
    """They read the imports under TYPE_CHECKING, and never call ``__getattr__``."""
    seen = {
        alias.name: node.module
        for node in ast.walk(ast.parse(FACE.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("shardmill.")
        for alias in node.names
    }
    assert sorted([*seen, "__version__"]) == sorted(shardmill.__all__)
    for name, module in seen.items():
        assert getattr(import_module(str(module)), name) is getattr(shardmill, name)


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import shardmill; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded - set(sys.stdlib_module_names) == {"shardmill"}
    assert [name for name in done.stdout.split() if name.startswith("shardmill")] == ["shardmill"]


def test_the_version_is_that_of_the_checkout() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shardmill.__version__ == project["version"]


# Keras says this of every tf.data.Dataset that `fit` is given without shuffle=False.
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_the_snippet_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras = pytest.importorskip("keras")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    snippet = next(block for block in blocks if "open_dataset" in block)
    publish(tmp_path / "datasets", coloured({"train": {"a": 40, "b": 40}}), name="photos")
    monkeypatch.chdir(tmp_path)
    model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    exec(snippet, {"model": model})


@pytest.mark.slow
def test_type_checkers_know_the_names_and_their_arguments(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(
        "import shardmill\n"
        "for batch in shardmill.open_dataset('a').batches('train', batch_size=3):\n"
        "    reveal_type(batch)\n"
        "shardmill.prepare('a', dataset='b', setings={})\n"
        "shardmill.prepar\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", "use.py"]
    env = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    lines = [
        line for line in done.stdout.splitlines() if line.startswith("use.py") and "defined in" not in line
    ]
    assert [line.partition(": ")[2] for line in lines] == [
        'note: Revealed type is "shardmill.training.reading.batch.Batch"',
        'error: Unexpected keyword argument "setings" for "prepare"; did you mean "settings"?  [call-arg]',
        'error: Module has no attribute "prepar"; maybe "prepare"?  [attr-defined]',
    ]
