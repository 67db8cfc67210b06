"""An example of distributed training in PyTorch: exact order, exact resume, any number of ranks.

    python -m shardmill.training.torch_example photos --out run                     this process alone
    python -m shardmill.training.torch_example photos --out run --spawn 2           two processes, by mp.spawn
    torchrun --standalone --nproc-per-node 2 -m shardmill.training.torch_example photos --out run

Run again, it goes on from its checkpoint, with as many ranks as there are then: the global batches stay the
same, and so does the gradient of each.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from shardmill.infra.strict_json import dump_json
from shardmill.training.dataset import Dataset, open_dataset
from shardmill.training.torch.data import TorchBatch, TorchLoader, this_rank

# How long ranks wait for each other before they give up; the default of gloo is half an hour.
_PATIENCE = timedelta(minutes=5)


def small_network(num_classes: int) -> nn.Module:
    """Build a small convolutional network.

    It normalises each example alone, so ranks need not synchronize.
    """
    layers: list[nn.Module] = []
    width_in = 3
    for width in (16, 32, 64):
        layers += [nn.Conv2d(width_in, width, 3, stride=2, padding=1), nn.GroupNorm(4, width), nn.ReLU()]
        width_in = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, num_classes))


class Run:
    """One rank of a training run."""

    def __init__(self, told: argparse.Namespace) -> None:
        self.told = told
        self.rank, self.num_ranks = this_rank()
        self.device = _device()
        self.dataset = open_dataset(told.dataset, root=told.root)
        self.loader = _loader(self.dataset, "train", told)
        torch.manual_seed(told.seed)
        self.network = small_network(len(self.dataset.classes)).to(
            self.device, memory_format=torch.channels_last
        )
        # DistributedDataParallel hands the first rank's weights to all, and averages gradients over ranks.
        self.model = DistributedDataParallel(self.network) if self.num_ranks > 1 else self.network
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=told.learning_rate, momentum=0.9)
        self.checkpoint = Path(told.out) / "checkpoint.pt"
        self._resume()

    def train(self) -> None:
        """Train from the current step to the end of the last epoch."""
        while self.loader.epoch < self.told.epochs:
            for batch in self.loader:
                self._train_step(batch)
                if self.loader.step % self.told.checkpoint_every == 0:
                    self._save()

    def _train_step(self, batch: TorchBatch) -> None:
        losses = self._losses(batch)
        # The weights add up to 1 over all ranks: this sum over ranks is the mean over the global batch, also
        # where its last rows are padding. The factor undoes the average over ranks.
        loss = (losses * batch.weights.to(self.device)).sum() * self.num_ranks
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def _losses(self, batch: TorchBatch) -> Any:
        images = batch.images.to(self.device, non_blocking=True).float().div_(127.5).sub_(1)
        labels = batch.labels.to(self.device, non_blocking=True)
        return nn.functional.cross_entropy(self.model(images), labels, reduction="none")

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def evaluate(self, split: str) -> float:
        """Return the mean loss over a split; each rank takes its slices."""
        self.model.eval()
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        for batch in _loader(self.dataset, split, self.told, num_epochs=1):
            weights = batch.weights.to(self.device)  # 1, and 0 for padding
            totals += torch.stack([(self._losses(batch) * weights).sum(), weights.sum()])
        if self.num_ranks > 1:
            dist.all_reduce(totals)
        self.model.train()
        return float(totals[0] / totals[1])

    def _resume(self) -> None:
        if not self.checkpoint.exists():
            return
        saved = torch.load(self.checkpoint, map_location=self.device)
        self.network.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.loader.load_state_dict(saved["loader"])

    def _save(self) -> None:
        """Save a checkpoint. All ranks are at the same step, so the first one saves for all."""
        if self.rank:
            return
        state = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)  # whole, or not there


def _loader(dataset: Dataset, split: str, told: argparse.Namespace, **loading: Any) -> TorchLoader:
    loading = {"num_workers": told.workers, "pin_memory": True, **loading}
    if split == "train":
        loading["num_epochs"] = told.epochs
    return dataset.torch(
        split,
        batch_size=told.batch_size,
        image_size=told.image_size,
        seed=told.seed,
        last_batch="pad",
        **loading,
    )


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", this_rank()[0])))
    return torch.device("cuda", torch.cuda.current_device())


def run(told: argparse.Namespace) -> None:
    """Run one rank from start to end. The first rank prints the result."""
    Path(told.out).mkdir(parents=True, exist_ok=True)
    of_rank = Run(told)
    of_rank.train()
    losses = {split: of_rank.evaluate(split) for split in of_rank.dataset.splits if split != "train"}
    if of_rank.rank == 0:
        print(dump_json({"epoch": of_rank.loader.epoch, "ranks": of_rank.num_ranks, "losses": losses}))


def _backend() -> str:
    return "nccl" if torch.cuda.is_available() else "gloo"


def _spawned(rank: int, told: argparse.Namespace, meeting_point: str) -> None:
    dist.init_process_group(
        _backend(), init_method=meeting_point, rank=rank, world_size=told.spawn, timeout=_PATIENCE
    )
    run(told)
    dist.destroy_process_group()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", help="NAME or NAME@VERSION")
    parser.add_argument("--root", help="folder of the datasets (default: $SHARDMILL_ROOT or ./datasets)")
    parser.add_argument("--out", required=True, help="folder of the checkpoint")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="examples a step, over all ranks together")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="of each rank")
    parser.add_argument(
        "--checkpoint-every", type=int, default=100, help="steps; also at the end of an epoch"
    )
    parser.add_argument("--spawn", type=int, default=0, help="start so many ranks on this host")
    return parser.parse_args(arguments)


def main() -> None:
    """Run as one rank of ``torchrun``, as several, or alone."""
    told = parse()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        dist.init_process_group(_backend(), timeout=_PATIENCE)
        run(told)
        dist.destroy_process_group()
    elif told.spawn:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(_spawned, (told, f"file://{folder}/ranks"), nprocs=told.spawn)
    else:
        run(told)


if __name__ == "__main__":
    main()
