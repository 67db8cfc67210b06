"""Training steps: the same mathematics in parts, on several devices, in half precision, and when resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.run.checkpoints.checkpoints import Checkpoints, Progress
from shardmill.training.tensorflow.optimization.optimizers import last_rate
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.rounding import EPSILON, apart, near
from tests.samples.training.steps import (
    STEPS,
    Training,
    Weights,
    batches,
    skip_unless_computable,
    trained_elsewhere,
)

keras = pytest.importorskip("keras")

ALL_ON = [
    "optimizer.ema_decay=0.9", "optimizer.clip_norm=0.05", "optimizer.first_layer_factor=0.5",
    "optimizer.name=adamw", "optimizer.learning_rate=0.01",
]  # fmt: skip


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(
        tmp_path_factory.mktemp("sets"), coloured({"train": {"a": 4, "b": 4}}, size=(8, 8)), name="set"
    )


def agree(found: Weights, expected: Weights, relative: float) -> None:
    """All variables are the same in their L2 norms, relative to their lengths."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        difference = np.linalg.norm(found[name].astype(np.float64) - value)
        assert difference <= relative * max(np.linalg.norm(value), 1e-3), name


def test_steps_in_parts_equal_whole_steps(version: DatasetVersion) -> None:
    whole = Training(version, *ALL_ON).steps(batches())
    parts = Training(version, *ALL_ON, "run.accumulate_steps=4").steps(batches())
    agree(parts.weights(), whole.weights(), 64 * EPSILON)
    sums, of_parts = whole.parts.totals.take(), parts.parts.totals.take()
    assert sums.loss > 0
    assert sums.num_finite == of_parts.num_finite == STEPS
    assert of_parts.loss == near(sums.loss)
    assert of_parts.score == sums.score
    assert of_parts.gradient_norm == pytest.approx(sums.gradient_norm, rel=1e-4)
    assert whole.parts.totals.take().loss == 0


def test_two_devices_equal_one(version: DatasetVersion) -> None:
    """With synchronised batch normalisation, averages, clipping and rates by layer."""
    settings = [*ALL_ON, "model.name=tests.samples.models.normalized_model"]
    one = Training(version, *settings).steps(batches()).weights()
    two = trained_elsewhere(Path(version.storage.location).parent, 2, *settings)
    assert apart(two, one) <= 1e-4


@pytest.mark.slow
def test_two_devices_in_parts_equal_one(version: DatasetVersion) -> None:
    one = Training(version, *ALL_ON).steps(batches())
    two = trained_elsewhere(Path(version.storage.location).parent, 2, *ALL_ON, "run.accumulate_steps=2")
    agree(two, one.weights(), 1e-4)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "off"])
def test_a_resumed_run_equals_an_unbroken_one(version: DatasetVersion, tmp_path: Path, kind: str) -> None:
    skip_unless_computable(kind)
    settings = [*ALL_ON, f"run.mixed_precision={kind}", "run.accumulate_steps=2"]
    unbroken = Training(version, *settings).steps(batches())
    first = Training(version, *settings).steps(batches()[:3])
    checkpoints = Checkpoints(Storage.at(tmp_path), keep=1)
    checkpoints.save(3, first.parts.state, Progress(step=3))
    second = Training(version, *settings)
    assert checkpoints.restore_latest(second.parts.state) == Progress(step=3)
    agree(second.steps(batches()[3:]).weights(), unbroken.weights(), 0)
    assert keras.config.dtype_policy().name == "float32", "the global policy is as it was"
    assert second.parts.model.layers[-1].compute_dtype == {"off": "float32"}.get(kind, kind)


@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_half_precision_without_its_instructions_is_refused(
    version: DatasetVersion, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """oneDNN would end the process: "could not create a primitive descriptor"."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setenv(variable, "avx2")
    with pytest.raises(ConfigError, match=f"'bfloat16' needs AVX-512 .* {variable} = avx2") as refused:
        Training(version, "run.mixed_precision=bfloat16")
    assert refused.value.remedy == f"unset {variable}, or set run.mixed_precision to off"
    Training(version)
    monkeypatch.setenv(variable, "AVX512_CORE")
    Training(version, "run.mixed_precision=bfloat16")


def test_a_step_that_overflows_changes_no_weight_but_the_scale(version: DatasetVersion) -> None:
    skip_unless_computable("float16")
    training = Training(version, "run.mixed_precision=float16", "optimizer.name=sgd")
    before = [variable.numpy() for variable in training.parts.model.variables]
    scale = float(training.parts.optimizer.dynamic_scale.numpy())
    training.parts.optimizer.dynamic_scale.assign(1e30)
    training.steps(batches()[:1])
    assert scale > 1
    assert float(training.parts.optimizer.dynamic_scale.numpy()) == pytest.approx(0.5e30)
    after = [variable.numpy() for variable in training.parts.model.variables]
    assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    rates = training.parts.stages.rates
    assert last_rate(training.parts.optimizer, rates) == pytest.approx(rates[0])
    training.parts.optimizer.dynamic_scale.assign(2.0)
    training.steps(batches()[1:4])
    assert last_rate(training.parts.optimizer, rates) == pytest.approx(rates[2]), (
        "the step that was left out is none of the schedule"
    )
    sums = training.parts.totals.take()
    assert (sums.num_finite, sums.num_sound) == (3, 0)
    assert not np.isfinite(sums.gradient_norm)


def test_averages_follow_the_weights_with_a_warm_up(version: DatasetVersion) -> None:
    training = Training(version, "optimizer.ema_decay=0.999")
    model, averages = training.parts.model, training.parts.averages
    assert averages is not None
    kernel, expected = model.trainable_variables[0], model.trainable_variables[0].numpy()
    for number, batch in enumerate(batches()):
        training.steps([batch])
        decay = min(0.999, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * kernel.numpy()
    trained = kernel.numpy()
    with training.parts.evaluated():
        assert kernel.numpy() == near(expected)
    assert np.array_equal(kernel.numpy(), trained)
    assert averages.variables[-1].numpy() == STEPS


def test_a_compiled_step_equals_one_that_is_not(version: DatasetVersion) -> None:
    plain = Training(version).steps(batches())
    agree(Training(version, "run.jit_compile=true").steps(batches()).weights(), plain.weights(), 64 * EPSILON)


def test_parts_must_divide_the_rows(version: DatasetVersion) -> None:
    with pytest.raises(ConfigError, match=r"accumulate_steps = 3 does not divide the 8 examples"):
        Training(version, "run.accumulate_steps=3")
    with pytest.raises(ConfigError, match="even number"):
        Training(version, "run.accumulate_steps=8", "augment.mixup=0.2")
