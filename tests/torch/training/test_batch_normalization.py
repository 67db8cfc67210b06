"""Batch normalisation over two ranks beside numpy: processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

CODE = """
import sys
import numpy as np
import torch
from torch import nn
from shardmill.training.torch.models.normalization import synchronized

folder, rank = sys.argv[1], int(sys.argv[2])
torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
chance, found = np.random.default_rng(rank), {}
for deviations in (3, 30, 300, 3000):
    # The ranks have different numbers of examples.
    values = chance.normal(deviations, 1.0, (3 + 2 * rank, 3, 6, 6)).astype(np.float32)
    images = torch.from_numpy(values).requires_grad_()
    (norm,) = synchronized(nn.Sequential(nn.BatchNorm2d(3, eps=1e-30, momentum=1.0)), torch.device("cpu"))
    output = norm(images)
    (output * torch.linspace(-1, 1, output.numel()).view(output.shape)).sum().backward()
    arrays = dict(images=values, output=output, gradient=images.grad, mean=norm.running_mean)
    arrays |= dict(variance=norm.running_var)
    found |= {f"{name}-{deviations}": np.asarray(torch.as_tensor(x).detach()) for name, x in arrays.items()}
np.savez(f"{folder}/{rank}.npz", **found)
torch.distributed.destroy_process_group()
"""


def test_two_ranks_normalise_as_numpy(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CODE, str(tmp_path), str(rank)], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for process in started:
        _, printed = process.communicate()
        assert process.returncode == 0, printed
    ranks = [np.load(tmp_path / f"{rank}.npz") for rank in range(2)]
    epsilon = np.finfo(np.float32).eps
    for deviations in (3, 30, 300, 3000):
        images = np.concatenate([rank[f"images-{deviations}"] for rank in ranks]).astype(np.float64)
        mean, variance = images.mean((0, 2, 3)), images.var((0, 2, 3))
        exact = (images - mean[:, None, None]) / np.sqrt(variance)[:, None, None]
        # x and the mean are taken apart in float32, as on one device.
        tolerance = 16 * deviations * epsilon
        outputs = [rank[f"output-{deviations}"] for rank in ranks]
        np.testing.assert_allclose(np.concatenate(outputs), exact, rtol=0, atol=tolerance)
        # The formula of Ioffe and Szegedy: the gradient less its mean and its part along the output.
        weights = [np.linspace(-1, 1, output.size).reshape(output.shape) for output in outputs]
        above = np.concatenate(weights)
        along = (above * exact).mean((0, 2, 3))[:, None, None] * exact
        wanted = (above - above.mean((0, 2, 3))[:, None, None] - along) / np.sqrt(variance)[:, None, None]
        gradients = np.concatenate([rank[f"gradient-{deviations}"] for rank in ranks])
        np.testing.assert_allclose(gradients, wanted, rtol=0, atol=4 * tolerance)
        for rank in ranks:
            count = images.size / 3
            np.testing.assert_allclose(rank[f"mean-{deviations}"], mean, rtol=4 * epsilon)
            sample = variance * count / (count - 1)
            np.testing.assert_allclose(rank[f"variance-{deviations}"], sample, rtol=tolerance)
