"""What PyTorch gained by the common session, compared with TensorFlow or with figures computed by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from shardmill import Dataset
from shardmill.training.frameworks import start
from shardmill.training.run.files.folds import divide_train_split
from shardmill.training.run.sharing.division import Division
from tests.samples.training.torch_runs import settings


def test_whole_images_are_squeezed_as_in_other_batches(dataset: Dataset) -> None:
    """Images of 60 by 80 pixels; the batches of ``Dataset.batches`` are those of TensorFlow."""
    plain = ("data.fit=stretch", "augment.random_resized_crop=false", "augment.horizontal_flip=false")
    config, reader = settings(*plain), dataset.reader("train")
    order = divide_train_split(config.data, reader, dataset.classes).order
    framework = start("torch", config)
    batch = next(framework.open_input(config, reader, order, Division((10,))).steps(0, 1))
    options = {"batch_size": 10, "image_size": 16, "seed": 3, "augment": config.augment}
    whole = next(iter(dataset.batches("train", fit="stretch", **options)))
    central = next(iter(dataset.batches("train", **options)))
    np.testing.assert_array_equal(batch.images.permute(0, 2, 3, 1).numpy(), whole.images)
    assert not np.array_equal(whole.images, central.images)
    assert framework.build(config, dataset.version, 6).spec.fit == "stretch"


def test_training_steps_are_profiled(root: Path) -> None:
    command = [sys.executable, "-m", "shardmill.training.profile", "set", "--root", str(root), "--json"]
    command += ["--model", "--seconds", "0.02", "--config-json", settings().model_dump_json()]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rates = json.loads(done.stdout.splitlines()[-1])["rates"]
    assert set(rates) == {"batches", "pipeline", "model", "training"}
    assert all(rate > 0 for rate in rates.values())


def test_a_step_is_eight_frames_below_the_command(root: Path, tmp_path: Path) -> None:
    changes = ("data.image_size=16", "data.global_batch_size=10", "run.epochs=1", "run.devices=one")
    command = [sys.executable, "-m", "tests.samples.training.frames", "set", "--root", str(root)]
    command += ["--runs", str(tmp_path), "--framework", "torch"]
    command += [part for change in changes for part in ("--set", change)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    frames = json.loads(done.stdout.splitlines()[-1])
    assert frames[0] == "train.py:<module>"
    assert frames[-1] == "frames.py:step"
    assert len(frames) <= 8, frames
