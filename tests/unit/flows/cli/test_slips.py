"""The likely slips of a newcomer: each is answered with what was meant."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from shardmill.flows import cli
from shardmill.infra.settings import near_settings
from shardmill.training.config import TrainConfig
from tests.samples.datasets.published import coloured, publish

# (what was typed, what the error says, what the remedy says)
SLIPS = [
    # commands
    ("trian photos", "No such command 'trian'", "did you mean shardmill train?"),
    ("list", "No such command 'list'", "shardmill datasets or shardmill runs"),
    ("fit photos", "No such command 'fit'", "did you mean shardmill train?"),
    ("serve", "No such command 'serve'", "shardmill up"),
    ("add images", "No such command 'add'", "did you mean shardmill schedule add?"),
    ("schedule ad images", "No such command 'ad'", "did you mean shardmill schedule add?"),
    ("platform backups", "No such command 'backups'", "did you mean shardmill platform backup?"),
    ("model promot x", "No such command 'promot'", "did you mean shardmill model promote?"),
    ("images", "No such command 'images'", "shardmill run images --dataset NAME"),
    # options
    ("prepare images --datset x", "--datset", "did you mean --dataset?"),
    ("prepare images", "Missing option '--dataset'", "write shardmill prepare SOURCE --dataset NAME"),
    ("prepare images photos", "Missing option '--dataset'", "write shardmill prepare SOURCE --dataset NAME"),
    ("prepare images --dataset x --dryrun", "--dryrun", "did you mean --dry-run?"),
    ("prepare images --dataset x --kind coco", "--kind", "did you mean --source-kind?"),
    ("prepare images --dataset x --epochs 3", "--epochs", "run.epochs is a setting of train"),
    ("prepare images --dataset x --quality 90", "--quality", "write --set image.quality=VALUE"),
    ("prepare images --dataset x --failure-budget 5%", "--failure-budget", "Share of inputs"),
    ("train photos --epoch 3", "--epoch", "did you mean --epochs?"),
    ("train photos --lr 0.1", "--lr", "did you mean --learning-rate?"),
    ("train photos --batchsize 3", "--batchsize", "did you mean --batch-size?"),
    ("train photos --gpus 2", "--gpus", "did you mean --devices?"),
    ("train photos --optimizer sgd", "--optimizer", "write --set optimizer.name=VALUE"),
    ("schedule add images --dataset x --epochs 3", "--epochs", "write --set run.epochs=VALUE"),
    ("train --dataset photos", "--dataset", "the dataset needs no option: shardmill train NAME"),
    ("train photos --epochs 3 --set run.epochs=4", "a setting is given twice", "leave out --epochs"),
    # keys
    ("train photos --set image.size=128", "unknown key 'image.size'", "'data.image_size'? (image.size"),
    ("train photos --set image_size=128", "unknown key 'image_size'", "did you mean 'data.image_size'?"),
    ("train photos --set batchsize=32", "unknown key 'batchsize'", "'data.global_batch_size'"),
    ("train photos --set lr=0.1", "unknown key 'lr'", "did you mean 'optimizer.learning_rate'?"),
    ("train photos --set epochs=3", "unknown key 'epochs'", "did you mean 'run.epochs'?"),
    ("train photos --set optimizer=adam", "optimizer is a group", "did you mean 'optimizer.name'?"),
    ("train photos --set optimiser.name=adam", "'optimiser.name'", "did you mean 'optimizer.name'?"),
    ("train photos --set model=ResNet50", "model is a group", "did you mean 'model.name'?"),
    ("train photos --set augment=false", "augment is a group", "shardmill settings augment"),
    ("train photos --set augment.flip=true", "'augment.flip'", "did you mean 'augment.horizontal_flip'?"),
    ("train photos --set nonsense=1", "'nonsense'", "search them: shardmill settings nonsense"),
    ("run images --dataset x --set batch=3", "called 'batch'", "'train.data.global_batch_size'?"),
    ("prepare images --dataset x --set size=64", "unknown key 'size'", "did you mean 'image.size'?"),
    ("prepare images --dataset x --set splits.val=0.2", "'splits.val'", "did you mean 'splits.validation'?"),
    ("prepare images --dataset x --set run.epochs=3", "'run.epochs'", "run.epochs is a setting of train"),
    ("prepare images --dataset x --set train.run.epochs=3", "not of [train]", "or to shardmill run"),
    # values
    ("train photos --set run.epochs=ten", "run.epochs = 'ten'", "give integer, ≥ 1, ≤ 1000000; default: 12"),
    ("train photos --epochs 0", "run.epochs = 0", "give integer, ≥ 1"),
    ("train photos --image-size 64x64", "data.image_size = '64x64'", "give integer or empty, ≥ 8, ≤ 4096"),
    ("train photos --framework pytorch", "run.framework = 'pytorch'", "did you mean 'torch'?"),
    ("prepare images --dataset x --set image.encoding=jpg", "image.encoding = 'jpg'", "did you mean 'jpeg'?"),
    ("prepare images --dataset x --set image.quality=200", "image.quality = 200", "≤ 100; default: 90"),
    ("prepare images --dataset x --source-kind imagefolder", "'imagefolder'", "did you mean 'image_folder'?"),
    # a missing =, quotes
    ("train photos --set run.epochs 3", "unexpected extra argument", "write --set run.epochs=3"),
    ("train photos --set run.epochs", "is not key=value", "write --set run.epochs=VALUE"),
    ("train photos --set 'x=[a,b]'", "neither a list nor a table", "single quotes"),
    ("train photos --set “run.epochs=3”", "the quotes are typographic", "write them as ' or \""),
    ("train photos --set run.epoch = 3", "unexpected extra argument", "write --set run.epoch=3"),
    ("train photos --set 'run.epochs: 3'", "is not key=value", "write --set run.epochs=3"),
    ("train photos run.epochs=3", "unexpected extra argument", "write --set run.epochs=3"),
    ("train photos --epochs", "'--epochs' requires an argument", "--epochs N: Passes over"),
    ("train photos --set run.mixed_precision=fp16", "'fp16'", "did you mean 'float16'?"),
    ("prepare images --dataset x --set image.background=white", "'white'", "#rrggbb"),
    ("prepare images --dataset x --set shards.count=4", "'shards.count'", "'shards.num_shards'"),
    ("schedule add images --dataset x --every hour", "--every hour: not an interval", "30min, 6h or 1d"),
    # names
    ("train photos:1", "'photos:1' cannot be used", "a version is written photos@1"),
    ("train datasets/photos", "is a folder", "photos --root datasets"),
    ("versions photos@1", "names a version", "give photos"),
    ("model rollback photos@1", "is a version, not an alias", "shardmill rollback photos@1"),
    ("model promote photos --set metric=acuracy", "no training run", None),
    ("locate photos cat/1.jpg", "unexpected extra argument", "--source URI"),
    ("version", "No such command 'version'", "shardmill --version"),
    ("train photoz", "no dataset 'photoz'", "did you mean 'photos'?"),
    ("train photos@9", "has no version '9'", "it has: 1"),
    ("train images", "no dataset 'images'", "shardmill prepare images --dataset NAME"),
    ("train ./images", "is a folder, not the name of a dataset", "shardmill prepare ./images --dataset NAME"),
    ("train photos --model resnet", "unknown model", None),
    ("train photos --recipe imgnet", "no recipe is named 'imgnet'", "did you mean 'imagenet-like'?"),
    ("train photos --config no.toml", "no.toml", "name a TOML file: --config FILE.toml"),
    ("evaluate run-1 --split dev", "--split dev: there is no such", "there are: train, validation, test"),
    ("evaluate run-1 --split tets", "--split tets: there is no such split", "did you mean 'test'?"),
    ("evaluate run-1 --split val", "no training run 'run-1'", "shardmill train NAME"),
    ("prepare images --dataset 'my photos'", "'my photos' cannot be used", "use letters, digits"),
    ("export photos out --format hf", "no export format 'hf'", "huggingface"),
    ("show \"photos?label = 'cat'\"", "cannot be read", "compare with =="),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset ``photos``, and a folder ``images`` of one class."""
    folder = tmp_path_factory.mktemp("slips")
    publish(folder / "datasets", coloured({"train": {"red": 3, "green": 3}}), name="photos")
    (folder / "images" / "cat").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(("typed", "error", "remedy"), SLIPS, ids=[slip[0] for slip in SLIPS])
def test_a_slip_is_answered(
    place: Path,
    typed: str,
    error: str,
    remedy: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("SHARDMILL_HOME", str(place / "home"))
    for name in ("ROOT", "RUNS"):
        monkeypatch.setenv(f"SHARDMILL_{name}", str(place / ("datasets" if name == "ROOT" else "runs")))
    assert cli.run(shlex.split(typed)) == 2
    said = capsys.readouterr().err.splitlines()
    first = next(line for line in said if line.startswith("error: "))
    assert error in first
    assert remedy is None or remedy in said[said.index(first) + 1]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("batch_size", "data.global_batch_size"),
        ("model", "model.name"),
        ("arch", "model.name"),
        ("learning_rate", "optimizer.learning_rate"),
        ("optimizer.lr", "optimizer.learning_rate"),
        ("weights", "model.weights"),
        ("pretrained", "model.weights"),
        ("dropout", "model.dropout"),
        ("mixup", "augment.mixup"),
        ("seed", "data.seed"),
        ("patience", "run.patience"),
        ("amp", "run.mixed_precision"),
        ("data.batch", "data.global_batch_size"),
        ("train.epochs", "run.epochs"),
        ("checkpoint_every_step", "run.checkpoint_every_steps"),
        ("label_smoothing", "optimizer.label_smoothing"),
    ],
)
def test_the_likeliest_setting_comes_first(key: str, meant: str) -> None:
    assert near_settings(key, TrainConfig)[0].setting.key == meant


def test_help_and_a_command_is_the_help_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["help", "schedule", "add"]) == 0
    assert capsys.readouterr().out.startswith("Usage: shardmill schedule add [SOURCE] --dataset NAME")
