"""A model that has an alias is not replaced under it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardmill.infra.errors import UsageError
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.deciding import promote_by_hand
from shardmill.training.results.run_files.run_folder import open_run
from shardmill.training.run.files.identity import run_identity, run_name
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish


@pytest.mark.parametrize("more", [{"fresh": True}, {"epochs": 9}], ids=["anew", "longer"])
def test_a_run_with_an_alias_is_neither_trained_anew_nor_longer(
    tmp_path: Path, more: dict[str, object]
) -> None:
    root, runs = tmp_path / "datasets", tmp_path / "runs"
    version = publish(root, coloured({"train": {"a": 2, "b": 2}}), name="set")
    table = {"optimizer": {"schedule": "constant"}}
    config = TrainConfig.model_validate({**table, "run": {"epochs": 2}})
    folder = runs / run_name(config, version)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run_identity(config, version)))
    result = {"epochs": 2, "history": [], "stopped_early": None}
    (folder / "result.json").write_text(json.dumps(result))
    promote_by_hand(open_run(folder.name, runs), "production", runs, "the only one")
    before = (folder / "result.json").read_bytes()

    changed = TrainConfig.model_validate({**table, "run": {"epochs": 2, **more}})
    assert run_name(changed, version) == folder.name
    with pytest.raises(UsageError, match="has the alias set@production"):
        train_dataset("set", changed, root=root, runs=runs)
    assert (folder / "result.json").read_bytes() == before
    answer = train_dataset("set", config, root=root, runs=runs)
    assert answer is not None
    assert answer["unchanged"]
