"""Compare the cost of the training loop with a bare step of TensorFlow, and measure that of a checkpoint.

    python -m tests.benchmarks.train.loop [--steps 50] [--rounds 7]

Both train the same model on the same batch in memory, in one process. They take turns, round by round, so
that what else the machine does falls on both alike; the median of the ratios within a round counts. Times
are milliseconds a step.

* *bare*: one ``tf.function`` with ``GradientTape`` and the optimizer of Keras.
* *loop*: ``EpochLoop`` as a run has it: input, figures on the device, a report every ten steps.
* *wait*: the share of its time that the loop waits for its input.
* *checkpoint*: the time for which the loop stands still, and the time that the thread writes then.
* *share*: of a run that saves every five minutes (``run.checkpoint_every_seconds``), and of one whose epochs
  take half a minute, since the end of each epoch saves too.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from shardmill.infra.settings import load_settings
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.devices import GpuSampler
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.tensorflow import starting
from tests.benchmarks.train.in_memory import InMemory, random_batch
from tests.samples.datasets.published import coloured, publish

CASES = {
    "small_cnn, 64 pixels, batch 32": ("small_cnn", 64, 32),
    "compact_resnet, 192 pixels, batch 64": ("compact_resnet", 192, 64),
}
CHECKPOINTED = ("small_cnn", "ResNet50")
CHECKPOINT_SECONDS = 300
SHORT_EPOCH_SECONDS = 30


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=50, help="steps a round")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    starting.start(seed=0)
    print("| model | bare | loop | loop / bare | wait |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            print(f"| {name} | {overhead(Path(folder), case, args.steps, args.rounds)} |", flush=True)
        print("\n| model | checkpoint | stands still | writes | share, 5 min | share, epochs of 30 s |")
        print("|---|---|---|---|---|---|")
        for model in CHECKPOINTED:
            print(f"| {model} | {checkpoint_cost(Path(folder), model)} |", flush=True)


def overhead(folder: Path, case: tuple[str, int, int], steps: int, rounds: int) -> str:
    """Measure the loop beside the bare step; the rest of a row."""
    import keras

    from shardmill.training.results.run_files.history import HistoryFiles
    from shardmill.training.results.tensorboard_log import TensorBoardLog
    from shardmill.training.run.checkpoints.checkpoints import Checkpoints, Progress
    from shardmill.training.run.checkpoints.shared import SharedCheckpoints
    from shardmill.training.run.epochs.epoch_loop import EpochLoop, TrainingData
    from shardmill.training.run.epochs.outputs import RunOutputs
    from shardmill.training.run.stopping import StopFlag
    from shardmill.training.tensorflow.framework import KerasInput

    model, image_size, batch_size = case
    framework, keras_model, config, reader = _parts(folder, model, image_size, batch_size, rounds + 1, steps)
    pipeline = InMemory(random_batch(image_size, batch_size), steps, reader=reader)
    # Traced here: the callback below is called within the scope of a strategy.
    bare = _bare_step(keras_model.parts).get_concrete_function(next(iter(pipeline.dataset(0, steps))))
    ratios, times = [], []

    class Turns(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.started = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            of_loop = time.perf_counter() - self.started
            started = time.perf_counter()
            for batch in pipeline.dataset(0, steps):
                loss = bare(batch)
            float(loss)
            of_bare = time.perf_counter() - started
            if epoch:  # the first round compiles
                times.append((of_bare / steps, of_loop / steps))
                ratios.append(of_loop / of_bare)

    MADE.append(Turns())
    own = Checkpoints(Storage.at(folder / "checkpoints"), 1)
    checkpoints = SharedCheckpoints(own, framework.ranks)
    history = HistoryFiles(Storage.at(folder))
    outputs = RunOutputs(
        checkpoints, TensorBoardLog(folder / "logs"), history, None, Trackers(None), GpuSampler(None)
    )
    examples = KerasInput(framework.strategy, None, pipeline)  # type: ignore[arg-type]
    data = TrainingData(examples, reader, pipeline, None)  # type: ignore[arg-type]
    loop = EpochLoop(config, framework, keras_model, data, outputs, Progress(), StopFlag())
    loop.run()
    checkpoints.close()
    bare_ms, loop_ms = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
    wait = loop.rates()["input_wait_fraction"]
    return f"{bare_ms:.2f} | {loop_ms:.2f} | {statistics.median(ratios):.3f} | {wait:.1%}"


MADE: list[Any] = []


def take_turns() -> Any:
    """The callback that was made last, for ``run.callbacks``."""
    import sys

    # ``python -m`` runs this file under another name than the one that the configuration imports.
    return (sys.modules["__main__"].MADE or MADE)[-1]


def checkpoint_cost(folder: Path, model: str) -> str:
    """Measure one checkpoint of a model with AdamW; the rest of a row."""
    from shardmill.training.run.checkpoints.checkpoints import Checkpoints, Progress

    _, keras_model, _, _ = _parts(folder, model, 64, 8, 1, 1)
    checkpoints = Checkpoints(Storage.at(folder / model), 1)
    stops, writes = [], []
    for step in range(3):
        started = time.perf_counter()
        checkpoints.save(step, keras_model.state, Progress(step=step))
        stops.append(time.perf_counter() - started)
        checkpoints.wait()
        writes.append(time.perf_counter() - started - stops[-1])
    checkpoints.close()
    size = max((folder / model).glob("*.npz")).stat().st_size
    stop, write = statistics.median(stops), statistics.median(writes)
    shares = " | ".join(f"{stop / every:.2%}" for every in (CHECKPOINT_SECONDS, SHORT_EPOCH_SECONDS))
    return f"{size / 1e6:.0f} MB | {stop * 1e3:.0f} ms | {write * 1e3:.0f} ms | {shares}"


def _parts(
    folder: Path, model: str, image_size: int, batch_size: int, epochs: int, steps: int
) -> tuple[Any, Any, TrainConfig, Any]:
    from shardmill import Dataset
    from shardmill.training.frameworks import start

    settings = [
        f"model.name={model}",
        f"data.image_size={image_size}",
        f"data.global_batch_size={batch_size}",
    ]
    settings += [
        "run.log_pictures=false",
        f"run.epochs={epochs}",
        "run.callbacks=['tests.benchmarks.train.loop:take_turns']",
    ]
    config = load_settings(TrainConfig, section="train", overrides=settings)
    root = folder / "datasets"
    name = f"set{len(list(root.glob('*')))}"
    version = publish(root, coloured({"train": {str(n): 1 for n in range(10)}}, size=(8, 8)), name=name)
    framework = start("tensorflow", config)
    built = framework.build(config, version, steps)
    return framework, built, config, Dataset(version, config.reading).reader("train")


def _bare_step(parts: Any) -> Any:
    import keras
    import tensorflow as tf

    model = keras.models.clone_model(parts.model)
    optimizer = keras.optimizers.AdamW(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            logits = model(batch["images"], training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


if __name__ == "__main__":
    main()
