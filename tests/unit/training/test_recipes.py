"""Recipes: each loads, says what it reaches, and gives way to what a user sets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shardmill.flows.flow_runs.jobs import prepare_settings, train_settings
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.recipes import recipe_names, recipe_path
from shardmill.training.train import main
from tests.samples.datasets.published import coloured, publish


@pytest.mark.parametrize("name", recipe_names())
def test_each_recipe_stores_images_as_large_as_its_model_takes(name: str) -> None:
    config = train_settings(None, [], name)
    assert config != TrainConfig()
    assert prepare_settings(None, [], recipe=name).image.size >= image_size_of(config)


@pytest.mark.parametrize("name", recipe_names())
def test_the_head_of_a_recipe_says_what_it_reaches(name: str) -> None:
    head = recipe_path(name).read_text(encoding="utf-8").split("\n[", 1)[0]
    assert all(line.startswith("#") for line in head.splitlines() if line)
    assert "accuracy" in head.lower()


@pytest.mark.parametrize("name", recipe_names())
def test_the_page_and_the_help_name_each_recipe(name: str) -> None:
    from shardmill.flows.cli import options

    assert name in Path("docs/recipes.md").read_text(encoding="utf-8")
    assert name in options.Recipe.__metadata__[0].help


@pytest.mark.slow
def test_a_small_stand_in_for_imagenet_trains(tmp_path: Path) -> None:
    """The recipe as it is, but for the size of its images and batches: drawn pictures, one epoch."""
    counts = {"train": {"a": 20, "b": 20}, "validation": {"a": 4, "b": 4}, "test": {"a": 4, "b": 4}}
    publish(tmp_path / "sets", coloured(counts, size=(40, 40)), name="set")
    changes = (
        "data.image_size=32",
        "data.global_batch_size=8",
        "optimizer.learning_rate=3e-3",
        "run.epochs=1",
    )
    argv = [sys.executable, "-m", "shardmill.training.train", "set", "--recipe", "imagenet-like", "--json"]
    argv += ["--root", str(tmp_path / "sets"), "--runs", str(tmp_path / "runs")]
    argv += [word for change in changes for word in ("--set", change)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["model"], result["steps"], result["epochs"]) == ("ResNet50", 5, 1)
    assert np.isfinite(result["metrics"]["test"]["loss"])


def test_files_and_single_settings_win_over_a_recipe(tmp_path: Path) -> None:
    recipe = train_settings(None, [], "clothing-from-scratch-cpu")
    own = tmp_path / "own.toml"
    own.write_text("[train.run]\nepochs = 3\n[train.optimizer]\nlearning_rate = 0.5\n")
    changed = train_settings(own, ["run.epochs=4"], "clothing-from-scratch-cpu")
    assert (changed.run.epochs, changed.optimizer.learning_rate) == (4, 0.5)
    assert changed.model == recipe.model
    assert changed.optimizer.label_smoothing == recipe.optimizer.label_smoothing


def test_an_unknown_recipe_suggests_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'fine-tune'") as caught:
        recipe_path("fine-tune")
    assert caught.value.remedy == "did you mean 'finetune'?"
    with pytest.raises(UsageError, match="'nothing-like-it'") as caught:
        recipe_path("nothing-like-it")
    assert "imagenet-like" in str(caught.value.remedy)


def test_the_command_of_the_job_takes_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["nowhere", "--recipe", "finetune", "--set", "run.epoch=3"])
    assert status == ConfigError.exit_code
    assert "run.epochs" in capsys.readouterr().err
