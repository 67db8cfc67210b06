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
    ("dataset photos", "No such command 'dataset'", "did you mean shardmill datasets?"),
    ("notifications", "No such command 'notifications'", "did you mean shardmill notify?"),
    ("model list", "No such command 'list'", "did you mean shardmill model aliases?"),
    ("schedule rm", "No such command 'rm'", "did you mean shardmill schedule remove?"),
    ("schedule create photos", "No such command 'create'", "did you mean shardmill schedule add?"),
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
    ("prepare --source images --dataset x", "--source", "SOURCE needs no option: shardmill prepare SOURCE"),
    ("prepare --data images --dataset x", "--data", "SOURCE needs no option"),
    ("predict --model run-1 images", "--model", "RUN needs no option: shardmill predict RUN PATHS..."),
    ("predict images --run run-1", "--run", "RUN needs no option"),
    ("export photos --output out", "--output", "DEST needs no option"),
    ("show photos --version 1", "--version", "a version is written NAME@VERSION"),
    ("train photos --model ''", "--model is empty", "--model NAME: The model"),
    ("train photos --epochs=", "--epochs is empty", "or leave it out"),
    ("prepare images --dataset x --source-kind ''", "--source-kind is empty", "auto|KIND"),
    ("predict run-1 images --out images", "--out images is a folder", "name a file: --out FILE"),
    ("predict run-1 images --out p.parquet", "the format is csv", "write --format parquet"),
    ("predict run-1 images --out p.xlsx", "the format is csv", "csv, parquet and json are written"),
    ("profile photos --out images", "--out images is a folder", "name a file"),
    ("rm photos@1 --purge --restore", "--purge and --restore", "leave one of them out"),
    ("notify http://x.example --remove a", "--remove a goes without a URL", "shardmill notify --remove a"),
    ("notify --test --remove a", "--remove a goes without --test", "shardmill notify --remove a"),
    ("notify example.com", "not the URL of a webhook", "https://example.com/hook"),
    ("notify http://x.example --on fail", "--on fail: not an occasion", "failed"),
    ("train photos --set run.epochs=3 --set run.epochs=4", "given twice", "leave one of them out"),
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
    ("train photos --epochs 0", "--epochs 0: run.epochs = 0", "give integer, ≥ 1"),
    ("train photos --batch-size 0", "--batch-size 0: ", None),
    ("train photos --set run.epochs=true", "run.epochs = 'true'", "give integer, ≥ 1"),
    ("train photos --set optimizer.learning_rate=true", "learning_rate = 'true'", "give number"),
    ("train photos --set run.patience=false", "run.patience = 'false'", "give integer"),
    ("prepare images --dataset x --set image.channels=true", "image.channels = 'true'", None),
    ("train photos --set data.balance.rule=sqrt", "'data.balance.rule'", "write data.balance=VALUE"),
    ("prepare images --dataset x --set image.grayscale=true", "'image.grayscale'", "'image.channels'?"),
    ("prepare images --dataset x --set shards.compression=gzip", "compression'", "'shards.container'?"),
    ("prepare images --dataset x --set shards.size=1", "'shards.size'", "'shards.shard_bytes'?"),
    ("prepare images --dataset x --source-kind webdataset", "'webdataset'", "did you mean 'archive'?"),
    ("prepare images --dataset x --source-kind csv", "'csv'", "did you mean 'table'?"),
    ("prepare images --dataset x --flink-master there", "is not HOST:PORT", "'flink.example.org:8081'"),
    ("train photos --image-size 64x64", "data.image_size = '64x64'", "give integer or empty, ≥ 8, ≤ 4096"),
    ("train photos --framework pytorch", "run.framework = 'pytorch'", "did you mean 'torch'?"),
    ("prepare images --dataset x --set image.encoding=jpg", "image.encoding = 'jpg'", "did you mean 'jpeg'?"),
    ("prepare images --dataset x --set image.quality=200", "image.quality = 200", "≤ 100; default: 90"),
    ("prepare images --dataset x --source-kind imagefolder", "'imagefolder'", "did you mean 'image_folder'?"),
    # a missing =, quotes
    ("prepare a --dataset x --set image.size 3", "unexpected extra argument", "write --set image.size=3"),
    ("train photos --set run.epochs 3", "is not key=value", "write --set run.epochs=VALUE"),
    ("train photos --set run.epochs", "is not key=value", "write --set run.epochs=VALUE"),
    ("train photos --set 'x=[a,b]'", "neither a list nor a table", "single quotes"),
    ("train photos --set “run.epochs=3”", "the quotes are typographic", "write them as ' or \""),
    ("prepare a --dataset x --set image.siz = 3", "unexpected extra argument", "write --set image.siz=3"),
    ("train photos --set 'run.epochs: 3'", "is not key=value", "write --set run.epochs=3"),
    ("train photos run.epochs=3", "'run.epochs=3' cannot be used", "is written --set run.epochs=3"),
    ("train photos --epochs", "'--epochs' requires an argument", "--epochs N: Passes over"),
    ("train photos --set run.mixed_precision=fp16", "'fp16'", "did you mean 'float16'?"),
    ("prepare images --dataset x --set image.background=white", "'white'", "#rrggbb"),
    ("prepare images --dataset x --set shards.count=4", "'shards.count'", "'shards.num_shards'"),
    ("schedule add images --dataset x --every hour", "--every hour: not an interval", "30min, 6h or 1d"),
    # names
    ("train photos:1", "'photos:1' cannot be used", "a version is written photos@1"),
    ("train datasets/photos", "is a folder", "photos --root datasets"),
    ("train photos-v1-3f2a9c", "no dataset", "it is named like a training run on the dataset photos@1"),
    ("train photos@", "'photos@' has no version after the @", "or use 'photos'"),
    ("show photos@v1", "has the alias photos@v1", "a version is written photos@1"),
    ("predict photos@1 images", "no training run 'photos@1'", "is a version of the dataset photos"),
    ("predict images/cat images", "no training run", "images/cat is here, and is not the folder of a run"),
    ("predict run-1 no.jpg", "no.jpg: no such file or folder", "name images"),
    ("train photos --root nowhere", "no dataset 'photos'", "there is no such folder"),
    ("train photos --root table.csv", "table.csv, is a file", "name a folder with --root"),
    ("runs --runs table.csv", "table.csv, is a file", "name a folder with --runs"),
    ("prepare datasets/photos --dataset x --root r", "is a dataset of Shardmill", "train photos --root"),
    ("prepare run --dataset x", "is a training run", None),
    ("prepare http://x.example/a.zip --dataset x", "is a web address", "--source-kind urls"),
    ("prepare s3:/bucket/a --dataset x", "does not exist", "write s3://bucket/a"),
    ("locate photos --record zzz", "no record 'zzz'", "16 hexadecimal digits"),
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
    """A folder with a dataset ``photos``, a folder ``images`` of one class, a run and a table."""
    folder = tmp_path_factory.mktemp("slips")
    publish(folder / "datasets", coloured({"train": {"red": 3, "green": 3}}), name="photos")
    (folder / "images" / "cat").mkdir(parents=True)
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text("{}")
    (folder / "table.csv").write_text("path,label")
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
