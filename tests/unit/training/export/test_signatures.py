"""Signatures of the exports of a run: each export has one, and none may be changed, added or removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmill.flows import cli
from shardmill.infra.errors import ConfigError
from shardmill.infra.signing import SigningKey
from shardmill.training.config import TrainConfig
from shardmill.training.export.signatures import remove_signatures, sign_exports
from shardmill.training.run.files.identity import run_name
from shardmill.training.train import train_dataset
from tests.samples.datasets.keys import Keys, make_keys
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.finished_runs import RUN_JSON


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run with a SavedModel, weights and an ONNX file."""
    run_dir = tmp_path / "runs" / "set-v1-0123456789"
    (run_dir / "export" / "variables").mkdir(parents=True)
    (run_dir / "export" / "saved_model.pb").write_bytes(b"graph")
    (run_dir / "export" / "variables" / "variables.index").write_bytes(b"weights")
    (run_dir / "model.weights.h5").write_bytes(b"weights")
    (run_dir / "model.onnx").write_bytes(b"onnx")
    (run_dir / "run.json").write_bytes(RUN_JSON)
    exports = {
        "onnx": {"path": "/machine/runs/r/model.onnx"},
        "litert": {"problem": "no such operation"},
        "torch": {"file": "/machine/runs/r/export/model.pt2"},
    }
    (run_dir / "result.json").write_text(
        json.dumps({"history": [], "run_dir": "/machine/runs/r", "exports": exports})
    )
    return run_dir


def command(word: str, key: Path, run_dir: Path, *more: str) -> int:
    option = "--key" if word == "sign" else "--public-key"
    return cli.run([word, "--run", run_dir.name, option, str(key), "--runs", str(run_dir.parent), *more])


def test_commands_sign_and_check_the_exports(
    run_dir: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("verify", keys.public, run_dir) == 5
    assert "is not signed" in capsys.readouterr().err
    names = ["export", "model.onnx", "model.weights.h5"]
    for word, key in (("sign", keys.private), ("verify", keys.public)):
        assert command(word, key, run_dir, "--json") == 0
        assert json.loads(capsys.readouterr().out)["exports"] == names
    assert sorted(path.name for path in run_dir.glob("*.sig")) == [f"{name}.sig" for name in names]
    (run_dir / "report.html").write_text("drawn again")  # no export
    assert command("verify", keys.public, run_dir) == 0


CHANGES: dict[str, Callable[[Path], object]] = {
    "a changed file of the folder": lambda run: (run / "export" / "saved_model.pb").write_bytes(b"evil"),
    "an added file of the folder": lambda run: (run / "export" / "more.pb").write_bytes(b""),
    "a removed file of the folder": lambda run: (run / "export/variables/variables.index").unlink(),
    "changed weights": lambda run: (run / "model.weights.h5").write_bytes(b"evil"),
    "an added form": lambda run: (run / "model.tflite").write_bytes(b"evil"),
    "a removed form": lambda run: (run / "model.onnx").unlink(),
    "a form removed with its signature": lambda run: [
        (run / name).unlink() for name in ("model.onnx", "model.onnx.sig")
    ],
    "a removed signature": lambda run: (run / "export.sig").unlink(),
    "exchanged signatures": lambda run: (run / "export.sig").write_bytes(
        (run / "model.onnx.sig").read_bytes()
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_exports_are_refused(change: str, run_dir: Path, keys: Keys) -> None:
    assert command("sign", keys.private, run_dir) == 0
    CHANGES[change](run_dir)
    assert command("verify", keys.public, run_dir) == 5


def test_another_key_is_refused(run_dir: Path, keys: Keys, tmp_path: Path) -> None:
    assert command("sign", make_keys(tmp_path, "other").private, run_dir) == 0
    assert command("verify", keys.public, run_dir) == 5
    assert command("sign", keys.private, run_dir) == 0, "signing again replaces the signatures"
    assert command("verify", keys.public, run_dir) == 0


def test_an_unfinished_run_is_not_signed(run_dir: Path, keys: Keys) -> None:
    (run_dir / "result.json").unlink()
    assert command("sign", keys.private, run_dir) == 3
    assert not list(run_dir.glob("*.sig"))


def test_exports_that_are_written_again_lose_their_signatures(run_dir: Path, keys: Keys) -> None:
    sign_exports(run_dir, SigningKey(keys.private))
    (run_dir / "model.onnx").unlink()
    remove_signatures(run_dir)
    assert not list(run_dir.glob("*.sig"))
    assert (run_dir / "export" / "saved_model.pb").exists()


def test_the_key_does_not_name_the_run(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 2, "b": 2}}), name="set")
    signed = TrainConfig.model_validate({"export": {"signing_key": "team.pem"}})
    assert run_name(signed, version) == run_name(TrainConfig(), version)


def test_a_wrong_key_is_refused_before_the_training_begins(tmp_path: Path, keys: Keys) -> None:
    publish(tmp_path / "datasets", coloured({"train": {"a": 2, "b": 2}}), name="set")
    config = TrainConfig.model_validate({"export": {"signing_key": str(keys.public)}})
    with pytest.raises(ConfigError, match=r"team\.pub is no private key"):
        train_dataset("set", config, root=tmp_path / "datasets", runs=tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("set-*"))
