"""Checkpoints: whole or not at all, bounded, and only ever brought back to what they were made of."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra.errors import CorruptDataError, Diverged, StorageError
from shardmill.infra.progress import subscribe
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.run.checkpoints.checkpoints import Checkpoints, Progress


@dataclass
class Variable:
    """As much of a Keras variable as a checkpoint touches."""

    path: str
    value: npt.NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def numpy(self) -> npt.NDArray[np.float32]:
        return self.value.copy()

    def assign(self, value: npt.NDArray[np.float32]) -> None:
        self.value = value


def variables(fill: float, *, last_shape: tuple[int, ...] = (4,)) -> list[Variable]:
    return [
        Variable("conv/kernel", np.full((3, 2), fill, np.float32)),
        Variable("conv/kernel", np.full(last_shape, fill, np.float32)),
    ]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def best(epoch: int) -> dict[str, float]:
    return {"epoch": epoch, "accuracy": 0.5, "loss": 1.0}


def test_the_latest_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(Storage.at(tmp_path), keep=2)
    assert checkpoints.restore_latest(variables(0)) is None
    for step in (5, 10, 999_999_999, 1_000_000_000):
        checkpoints.save(step, variables(step), Progress(step=step, best=best(1)))
    found = variables(0)
    progress = checkpoints.restore_latest(found)
    assert progress == Progress(step=1_000_000_000, best=best(1))
    assert [float(variable.value.flat[0]) for variable in found] == [1e9, 1e9]
    assert names(tmp_path) == ["step-1000000000.npz", "step-999999999.npz"]


def test_best_models_are_kept_while_a_checkpoint_names_them(tmp_path: Path) -> None:
    checkpoints = Checkpoints(Storage.at(tmp_path), keep=2)
    for epoch, best_epoch in [(1, 1), (2, 2), (3, 2), (4, 4)]:
        checkpoints.save(10 * epoch, variables(epoch), Progress(epoch=epoch, best=best(best_epoch)))
        checkpoints.wait()
        bests = [name for name in names(tmp_path) if name.startswith("best")]
        assert bests == [f"best-{kept:06d}.npz" for kept in {1: [1], 2: [1, 2], 3: [2], 4: [2, 4]}[epoch]]
        found = variables(0)[:1]
        checkpoints.restore_best(best_epoch, found)
        assert float(found[0].value[0, 0]) == best_epoch


def test_the_best_model_is_written_once(tmp_path: Path) -> None:
    checkpoints = Checkpoints(Storage.at(tmp_path), keep=2)
    checkpoints.save(10, variables(1), Progress(epoch=1, best=best(1)))
    checkpoints.close()
    assert (tmp_path / "best-000001.npz").samefile(tmp_path / "step-000000010.npz")


def test_the_best_of_an_attempt_that_was_killed_is_not_taken(tmp_path: Path) -> None:
    """It was written, and the checkpoint after it was not: the next attempt may find that epoch worse."""
    checkpoints = Checkpoints(Storage.at(tmp_path), keep=2)
    checkpoints.save(10, variables(1), Progress(epoch=1, best=best(1)))
    checkpoints.save(20, variables(2), Progress(epoch=2, best=best(2)))
    checkpoints.close()
    (tmp_path / "step-000000020.npz").unlink()
    resumed, found = Checkpoints(Storage.at(tmp_path), keep=2), variables(0)
    progress = resumed.restore_latest(found)
    assert progress is not None
    assert progress.best == best(1)
    resumed.save(20, variables(3), Progress(epoch=2, best=progress.best))
    resumed.restore_best(1, found)
    assert float(found[0].value[0, 0]) == 1
    assert "best-000002.npz" not in names(tmp_path)


def test_values_are_those_of_the_step_although_training_goes_on(tmp_path: Path) -> None:
    """The file is written later: here not before the variables have changed."""
    changed = threading.Event()
    checkpoints, found = Checkpoints(Storage.at(tmp_path), keep=2), variables(1)
    checkpoints.save(1, found, progress := Progress(step=1), before=changed.wait)
    for variable in found:
        variable.value[...] = 7
    progress.step = 7
    assert names(tmp_path) == []
    changed.set()
    restored = checkpoints.restore_latest(found)
    assert restored == Progress(step=1)
    assert float(found[0].value[0, 0]) == 1


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    def full() -> None:
        raise StorageError("no space left")

    checkpoints = Checkpoints(Storage.at(tmp_path), keep=2)
    checkpoints.save(1, variables(1), Progress(), before=full)
    with pytest.raises(StorageError, match="no space"):
        checkpoints.save(2, variables(1), Progress())


def test_a_checkpoint_of_another_model_changes_nothing(tmp_path: Path) -> None:
    other = Checkpoints(Storage.at(tmp_path), keep=2)
    other.save(5, variables(7, last_shape=(5,)), Progress())
    other.close()
    found = variables(0)
    assert Checkpoints(Storage.at(tmp_path), keep=2).restore_latest(found) is None
    assert [float(variable.value.flat[0]) for variable in found] == [0, 0]


def test_numbers_that_keras_gives_to_nameless_things_do_not_count(tmp_path: Path) -> None:
    """EfficientNet's seeds are numbered anew where it is copied for several replicas."""
    kinds = ("seed_generator{}/state", "adamw/conv2d{}_kernel_momentum")
    one = [Variable(kind.format(""), np.ones(2, np.float32)) for kind in kinds]
    two = [Variable(kind.format("_7"), np.zeros(2, np.float32)) for kind in kinds]
    checkpoints = Checkpoints(Storage.at(tmp_path), keep=2)
    checkpoints.save(5, one, Progress())
    assert checkpoints.restore_latest(two) is not None
    assert float(two[1].value[0]) == 1


def test_damage_anywhere_is_noticed(tmp_path: Path) -> None:
    """Each changed byte: the checkpoint is passed over for the one before, or nothing was lost by it."""
    checkpoints = Checkpoints(Storage.at(tmp_path), keep=2)
    checkpoints.save(5, variables(5), Progress(step=5, best=best(1)))
    checkpoints.save(6, variables(6), Progress(step=6, best=best(1)))
    checkpoints.wait()
    file = tmp_path / "step-000000006.npz"
    data = file.read_bytes()
    chance = random.Random(1)
    for position in chance.sample(range(len(data)), 400):
        file.write_bytes(
            data[:position] + bytes([data[position] ^ (1 << chance.randrange(8))]) + data[position + 1 :]
        )
        found = variables(0)
        progress = checkpoints.restore_latest(found)
        assert progress is not None
        values = [variable.value.tolist() for variable in found]
        assert values == [variable.value.tolist() for variable in variables(progress.step)], position
    for length in chance.sample(range(len(data)), 20):
        file.write_bytes(data[:length])
        progress = checkpoints.restore_latest(variables(0))
        assert progress is not None
        assert progress.step == 5
    (tmp_path / "best-000001.npz").write_bytes(b"PK")
    with pytest.raises(CorruptDataError, match="best-000001"):
        checkpoints.restore_best(1, variables(0))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_checkpoint_holds_finite_numbers(tmp_path: Path, value: float) -> None:
    checkpoints, spoiled = Checkpoints(Storage.at(tmp_path), keep=2), variables(1)
    spoiled[1].value[2] = value
    with pytest.raises(Diverged, match="diverged by step 7 of the run: conv/kernel became infinite or not"):
        checkpoints.save(7, spoiled, Progress(step=7))
    checkpoints.close()
    assert names(tmp_path) == []


def test_a_checkpoint_of_an_earlier_release_that_is_not_finite_is_passed_over_and_replaced(
    tmp_path: Path,
) -> None:
    """With one checkpoint kept, too: what the run writes then counts, though its step is an earlier one."""
    checkpoints = Checkpoints(Storage.at(tmp_path), keep=2)
    checkpoints.save(5, variables(5), Progress(step=5, best=best(1)))
    checkpoints.save(9, variables(9), Progress(epoch=2, best=best(2)))
    checkpoints.close()
    for path in (tmp_path / "step-000000009.npz", tmp_path / "best-000002.npz"):
        with np.load(path) as archive:
            arrays = dict(archive)
        arrays["00000:conv:kernel"][0, 0] = np.nan
        path.unlink()
        np.savez(path, **arrays)
    resumed, found, said = Checkpoints(Storage.at(tmp_path), keep=1), variables(0), []
    end = subscribe(said.append)
    try:
        progress = resumed.restore_latest(found)
    finally:
        end()
    assert progress == Progress(step=5, best=best(1))
    assert float(found[0].value[0, 0]) == 5
    assert "step-000000009.npz is of a training that had diverged: conv/kernel" in said[0]["message"]
    with pytest.raises(CorruptDataError, match="had diverged"):
        resumed.restore_best(2, found)
    resumed.save(6, variables(6), Progress(step=6, best=best(1)))
    assert resumed.restore_latest(found) == Progress(step=6, best=best(1))
    assert names(tmp_path) == ["step-000000006.npz"]
