"""An augmentation is one file, or a plugin: settings have it, and every road applies it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.plugins import add_distribution

# Inverts every other image, as nobody else does. It moves no pixel, so boxes and masks stay.
INVERT = """
from pydantic import Field

from shardmill.infra.settings import Settings
from shardmill.training.augment.kind import ImageAugmentation
from shardmill.training.draws import uniform


class _Fields(Settings):
    invert: bool = Field(default=False, description="turn every other image into its negative")


class Invert(ImageAugmentation[_Fields]):
    Fields = _Fields
    turn = 50
    streams = range(800, 801)
    objects_follow = True
    name = "augment.invert"

    @property
    def is_on(self):
        return self.settings.invert

    def draw(self, keys, image_size):
        return {"inverted": uniform(keys, 800) < 0.5}

    def apply(self, image, drawn, row):
        if drawn["inverted"][row]:
            image[...] = 255 - image
"""
# Blackens the first row of every image, on the device.
BLACKEN = """
from pydantic import Field

from shardmill.infra.settings import Settings
from shardmill.training.augment.kind import BatchAugmentation, tf
from shardmill.training.draws import uniform


class _Fields(Settings):
    blacken: bool = Field(default=False, description="blacken the first row of pixels")


class Blacken(BatchAugmentation[_Fields]):
    Fields = _Fields
    turn = 50
    streams = range(900, 901)
    name = "augment.blacken"

    @property
    def is_on(self):
        return self.settings.blacken

    def draw(self, keys, image_size):
        return {"factor": (0.0 * uniform(keys, 900)).astype("float32")}

    def tensorflow(self, *, deterministic):
        def blackened(images, drawn):
            first = tf.cast(images[:, :1], tf.float32) * drawn["factor"][:, None, None, None]
            return tf.concat([tf.cast(first, images.dtype), images[:, 1:]], axis=1)

        return blackened

    def torch(self, images, drawn):
        images = images.clone()
        images[:, :, 0] = 0
        return images
"""
ROADS = """
import json, sys
from pathlib import Path
import numpy as np
from shardmill.training.augment import kinds
kinds.__path__.append(sys.argv[1])
from shardmill.training.augment.parameters import draw_parameters
from shardmill.training.config import AugmentSettings
from shardmill.training.dataset import open_dataset
from shardmill.training.order.from_settings import order_from_settings

root, found = sys.argv[2], {}
asked = {"batch_size": 8, "image_size": 16, "seed": 3, "training": True}
plain = {"horizontal_flip": False, "random_resized_crop": False}


def seen(batches):
    return np.concatenate([np.array(images) for images, *_ in batches])


def road(name, read):
    # Each inverts every other image, the second as a plugin with draws of its own.
    was, now = read({**plain}), read({**plain, "invert": True, "plugged": {"invert": True}})
    same = (now == was).all(axis=(1, 2, 3))
    inverted = (now == 255 - was).all(axis=(1, 2, 3))
    found[name] = [int(same.sum()), int(inverted.sum()), len(now)]
    return now


def opened(**reading):
    return open_dataset("set@1", root=root, **reading)


def numpy_images(augment):
    return seen(opened().batches("train", augment=augment, **asked))


first = road("numpy", numpy_images)
alone = [numpy_images({**plain, **one}) for one in ({"invert": True}, {"plugged": {"invert": True}})]
assert not (alone[0] == first).all() and not (alone[1] == first).all() and not (alone[0] == alone[1]).all()
road("decoded cache", lambda augment: seen(
    opened(cache="memory", cache_form="decoded").batches("train", augment=augment, **asked)))
road("staged", lambda augment: seen(
    opened(staging_dir=root + "/staged").batches("train", augment=augment, **asked)))
on_device_alone = {**plain, "plugged_blacken": {"blacken": True}}
if sys.argv[3] == "torch":
    def torch_images(augment):
        loader = opened().torch("train", augment=augment, num_workers=int(sys.argv[4]), num_epochs=1, **asked)
        return np.concatenate([batch.images.permute(0, 2, 3, 1).numpy() for batch in loader])
    assert (road("torch", torch_images) == first).all()
    loader = opened().torch("train", augment=on_device_alone, num_workers=0, num_epochs=1, **asked)
    on_device = [loader.augment_on_device(batch).images.numpy().transpose(0, 2, 3, 1) for batch in loader]
else:
    exact = road("exact", lambda augment: seen(opened().tf("train", augment=augment, **asked)))
    assert (exact == first).all()
    road("exact, TensorFlow decodes", lambda augment: seen(
        opened(decoder="tensorflow").tf("train", augment=augment, **asked)))
    road("streaming", lambda augment: seen(opened(mode="streaming").tf("train", augment=augment, **asked)))
    on_device = [np.array(images) for images, *_ in opened().tf(
        "train", augment=on_device_alone, **asked)]
found["batches on the device"] = [int((images[:, 0] == 0).all() and (images[:, 1] > 0).any())
                                  for images in on_device]
settings = AugmentSettings(blacken=True, plugged_blacken={"blacken": True})
assert not settings.without_batched().of_batches and settings.without_batched().of_images
for name, refuse in (("boxes", settings.check_objects_follow), ("numpy", lambda: opened().batches(
        "train", augment=settings, **asked))):
    try:
        refuse()
    except Exception as error:
        found["refused for " + name] = str(error)
print(json.dumps(found))
"""


def check_roads(tmp_path: Path, python: str, framework: str, workers: int = 0) -> None:
    """Check that the two augmentations above act on all roads of a framework, as files and as plugins."""
    folder = tmp_path / "kinds"
    folder.mkdir()
    (folder / "invert.py").write_text(INVERT)
    (folder / "blacken.py").write_text(BLACKEN)
    points = {"plugged": "plugged:Invert", "plugged_blacken": "plugged:Blacken"}
    add_distribution(
        tmp_path / "installed",
        "plugged 1.0",
        {"shardmill.augmentations": points},
        {"plugged.py": INVERT + BLACKEN.replace("_Fields", "_BlackenFields")},
    )
    publish(tmp_path, coloured({"train": {"a": 24, "b": 16}}, size=(16, 16)), name="set")
    done = subprocess.run(
        [python, "-c", ROADS, str(folder), str(tmp_path), framework, str(workers)],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[4]}{os.pathsep}{tmp_path / 'installed'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for name in ("boxes", "numpy"):
        assert "augment.blacken" in found.pop(f"refused for {name}")
    assert set(found.pop("batches on the device")) == {1}
    assert len(found) >= 4
    for road, (same, inverted, every) in found.items():
        assert every == 40, road
        assert same + inverted == every, road
        assert 10 <= inverted <= 30, road


@pytest.mark.filterwarnings("ignore")
def test_an_augmentation_of_one_file_acts_on_every_road(tmp_path: Path) -> None:
    check_roads(tmp_path, sys.executable, "tensorflow")
