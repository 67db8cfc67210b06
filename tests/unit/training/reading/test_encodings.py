"""Images in every stored form reach the model with the same pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import open_dataset
from shardmill.infra.errors import ConfigError
from shardmill.training.reading import decode as windows
from tests.samples.datasets.published import Picture, publish
from tests.samples.images.forms import gradient


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("encoding", "tolerance"), [("raw", 0), ("png", 0), ("webp", 6), ("jpeg", 6)])
def test_a_batch_holds_the_stored_pixels(
    tmp_path: Path, encoding: Any, tolerance: int, channels: int
) -> None:
    pixels = gradient(40, 60)[:, :, :channels].copy()
    publish(tmp_path, [Picture("test", "a", pixels)], name="set", encoding=encoding, quality=98)
    for size in (40, 20):
        ((images, _),) = open_dataset("set", root=tmp_path).tf("test", image_size=size, batch_size=1)
        centre = pixels[:, 10:50].reshape(size, 40 // size, size, 40 // size, channels).mean(axis=(1, 3))
        wanted = np.broadcast_to(centre, (size, size, 3))
        assert images.shape == (1, size, size, 3)
        assert np.abs(images[0].numpy().astype(float) - wanted).mean() <= tolerance / 4 + 0.5
        if channels == 1:
            assert np.ptp(images[0].numpy().astype(int), axis=2).max() <= tolerance


@pytest.mark.parametrize("encoding", ["raw", "png", "webp"])
def test_training_windows_of_whole_images(tmp_path: Path, encoding: Any) -> None:
    pictures = [Picture("train", "a", np.roll(gradient(40, 60), shift, 1)) for shift in range(8)]
    publish(tmp_path, pictures, name="set", encoding=encoding)
    jpegs = publish(tmp_path, pictures, name="jpegs", quality=100)
    assert jpegs.manifest.image_encoding == "jpeg"
    found, wanted = (
        next(iter(open_dataset(name, root=tmp_path).tf("train", image_size=24, batch_size=8)))
        for name in ("set", "jpegs")
    )
    assert found[1].numpy().tolist() == wanted[1].numpy().tolist()
    assert np.abs(found[0].numpy().astype(int) - wanted[0].numpy().astype(int)).mean() < 4


def test_an_encoding_of_the_future_is_refused() -> None:
    from shardmill.training.tensorflow.data.preprocess import decode_window

    with pytest.raises(ConfigError, match="'jxl'"):
        decode_window(b"", [1, 1, 3], [0, 0, 1, 1], 8, "jxl")
    with pytest.raises(ConfigError, match="'jxl'"):
        windows.decode_window(b"", "jxl", (1, 1, 3), (0, 0, 1, 1), np.empty((8, 8, 3), np.uint8))
