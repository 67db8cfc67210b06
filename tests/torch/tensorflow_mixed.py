"""Batches with RandAugment, MixUp and CutMix as TensorFlow has them, in an environment with TensorFlow.

``python -m tests.torch.tensorflow_mixed ROOT OUT.npz JSON`` writes the images and soft labels of two steps.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from shardmill import open_dataset
from shardmill.training.config import AugmentSettings


def write(root: str, out: str, augment: str) -> None:
    """Write uint8 [2, 10, 24, 24, 3] and float32 [2, 10, 3]."""
    settings = AugmentSettings.model_validate(json.loads(augment))
    dataset = open_dataset("set@1", root=root)
    batches = dataset.tf("train", batch_size=10, image_size=24, seed=3, augment=settings)
    images, labels = zip(*batches.take(2).as_numpy_iterator(), strict=True)
    np.savez(out, images=np.stack(images), labels=np.stack(labels))


if __name__ == "__main__":
    write(*sys.argv[1:])
