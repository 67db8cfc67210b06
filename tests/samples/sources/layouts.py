"""Public layouts of data sets, each made small from the structure that its documentation or loader describes.

A builder returns the files; ``Layout`` says what is right: split -> class -> number of images.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io  # type: ignore[import-untyped]
from PIL import Image

from tests.samples.images.videos import video
from tests.samples.sources.tfds_folders import CLASSES, make_tfds, plain_records

Files = dict[str, bytes]
Counts = Mapping[str | None, Mapping[str, int]]

_seeds = itertools.count(1)


@dataclass(frozen=True)
class Layout:
    """A layout, and what is right.

    Attributes:
        name: for people.
        build: returns its files.
        kind: that recognises it; "asks" if the user is asked.
        right: split -> class -> images; None if no split is given. The key of several classes joins them by
            ", "; of masks it is "".
        classes: of masks.
    """

    name: str
    build: Callable[[], Files]
    kind: str
    right: Counts = field(default_factory=dict)
    classes: tuple[str, ...] = ()


def picture(ending: str = "jpg") -> bytes:
    """A small picture that no other call gives."""
    seed = next(_seeds)
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, {"jpg": "JPEG", "png": "PNG", "ppm": "PPM", "tif": "TIFF"}[ending])
    return sink.getvalue()


def pictures(*names: str) -> Files:
    """A small picture for each name."""
    return {
        name: picture({"jpeg": "jpg"}.get(name.rpartition(".")[2].lower(), name.rpartition(".")[2].lower()))
        for name in names
    }


def lines(*rows: str) -> bytes:
    """A text of these lines."""
    return "".join(f"{row}\n" for row in rows).encode()


def joined(between: str, *columns: Iterable[object]) -> list[str]:
    """Lines of the values of these columns."""
    return [between.join(map(str, row)) for row in zip(*columns, strict=False)]


def imagenet() -> Files:
    """https://www.kaggle.com/c/imagenet-object-localization-challenge/data."""
    data = "ILSVRC/Data/CLS-LOC"
    train = [
        f"{synset}/{synset}_{number}"
        for synset in ("n01440764", "n02012849", "n03126707")
        for number in (1, 2)
    ]
    val = [f"ILSVRC2012_val_0000000{number}" for number in (1, 2, 3)]
    found = pictures(
        *(f"{data}/train/{name}.JPEG" for name in train), *(f"{data}/val/{name}.JPEG" for name in val)
    )
    test = [f"ILSVRC2012_test_0000000{number}" for number in (1, 2)]
    found |= pictures(*(f"{data}/test/{name}.JPEG" for name in test))
    boxes = b"<annotation><filename>x</filename><object><name>n01440764</name></object></annotation>"
    found |= {f"ILSVRC/Annotations/CLS-LOC/val/{name}.xml": boxes for name in val}
    sets = "ILSVRC/ImageSets/CLS-LOC"
    return found | {
        f"{sets}/train_cls.txt": lines(*(f"{name} {at}" for at, name in enumerate(train, 1))),
        f"{sets}/train_loc.txt": lines(*(f"{name} {at}" for at, name in enumerate(train, 1))),
        f"{sets}/val.txt": lines(*(f"{name} {at}" for at, name in enumerate(val, 1))),
        f"{sets}/test.txt": lines(*(f"{name} {at}" for at, name in enumerate(test, 1))),
        "LOC_synset_mapping.txt": lines("n01440764 tench, Tinca tinca", "n02012849 crane", "n03126707 crane"),
        "LOC_train_solution.csv": lines(
            "ImageId,PredictionString", *(f"{name[10:]},{name[:9]} 1 2 3 4 " for name in train)
        ),
        "LOC_val_solution.csv": lines(
            "ImageId,PredictionString",
            f"{val[2]},n03126707 85 1 499 272 ",
            f"{val[0]},n01440764 1 2 3 4 n01440764 4 5 6 7 ",
            f"{val[1]},n01440764 1 2 3 4 ",
        ),
        "LOC_sample_submission.csv": lines(
            "ImageId,PredictionString", *(f"{name},n01440764 1 2 3 4" for name in test)
        ),
    }  # fmt: skip


def tiny_imagenet() -> Files:
    """http://cs231n.stanford.edu/tiny-imagenet-200.zip."""
    found: Files = {
        "wnids.txt": lines("n01443537", "n02012849"),
        "words.txt": lines("n00001740\tentity", "n01443537\tgoldfish, Carassius auratus", "n02012849\tcrane"),
    }
    for synset in ("n01443537", "n02012849"):
        names = [f"{synset}_{number}.JPEG" for number in range(2)]
        found |= pictures(*(f"train/{synset}/images/{name}" for name in names))
        found[f"train/{synset}/{synset}_boxes.txt"] = lines(*(f"{name}\t0\t10\t63\t58" for name in names))
    found |= pictures(*(f"val/images/val_{number}.JPEG" for number in range(3)), "test/images/test_0.JPEG")
    found["val/val_annotations.txt"] = lines(
        "val_0.JPEG\tn02012849\t0\t32\t44\t62",
        "val_1.JPEG\tn01443537\t52\t55\t57\t59",
        "val_2.JPEG\tn02012849\t4\t0\t60\t55",
    )
    return found


def cub() -> Files:
    """CUB_200_2011 of https://www.vision.caltech.edu/datasets/cub_200_2011/."""
    names = [
        f"00{at}.{bird}/{bird}_000{number}.jpg"
        for at, bird in ((1, "Albatross"), (2, "Auk"))
        for number in (1, 2, 3)
    ]
    top = "CUB_200_2011"
    return pictures(*(f"{top}/images/{name}" for name in names)) | {
        f"{top}/images.txt": lines(*(f"{at} {name}" for at, name in enumerate(names, 1))),
        f"{top}/image_class_labels.txt": lines(*(f"{at} {1 if at < 4 else 2}" for at in range(1, 7))),
        f"{top}/classes.txt": lines("1 001.Albatross", "2 002.Auk"),
        f"{top}/train_test_split.txt": lines(*(f"{at} {at % 3 % 2}" for at in range(1, 7))),
        f"{top}/bounding_boxes.txt": lines(*(f"{at} 60.0 27.0 325.0 304.0" for at in range(1, 7))),
        f"{top}/parts/parts.txt": lines("1 back", "2 beak"),
        f"{top}/attributes/image_attribute_labels.txt": lines("1 1 0 3 27.708", "1 2 0 3 27.708"),
        "attributes.txt": lines("1 has_bill_shape::curved", "2 has_bill_shape::dagger"),
    }  # fmt: skip


def pets() -> Files:
    """https://www.robots.ox.ac.uk/~vgg/data/pets/, as torchvision unpacks it."""
    names = ["Abyssinian_1", "Abyssinian_2", "american_bulldog_10", "american_bulldog_11"]
    rows = [f"{name} {1 + at // 2} {1 + at // 2} 1" for at, name in enumerate(names)]
    trimaps = pictures(*(f"annotations/trimaps/{name}.png" for name in names))
    box = b"<annotation><filename>Abyssinian_1.jpg</filename></annotation>"
    return pictures(*(f"images/{name}.jpg" for name in names)) | trimaps | {
        "annotations/xmls/Abyssinian_1.xml": box,
        "annotations/README": b"ANNOTATIONS\n",
        "annotations/list.txt": lines("#Image CLASS-ID SPECIES BREED ID", "#ID: 1:37 Class ids", *rows),
        "annotations/trainval.txt": lines(rows[0], rows[2]),
        "annotations/test.txt": lines(rows[1], rows[3]),
    }  # fmt: skip


def food() -> Files:
    """http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz."""
    names = [f"{dish}/{number}" for dish in ("apple_pie", "waffles") for number in (1005649, 134, 101)]
    train, test = names[::2], names[1::2]
    return pictures(*(f"images/{name}.jpg" for name in names)) | {
        "meta/train.txt": lines(*train),
        "meta/test.txt": lines(*test),
        "meta/train.json": b'{"apple_pie": ["apple_pie/1005649"], "waffles": ["waffles/134"]}',
        "meta/classes.txt": lines("apple_pie", "waffles"),
        "meta/labels.txt": lines("Apple pie", "Waffles"),
        "license_agreement.txt": b"text\n",
        "README.txt": b"text\n",
    }


def dtd() -> Files:
    """https://www.robots.ox.ac.uk/~vgg/data/dtd/."""
    names = [
        f"{texture}/{texture}_000{number}.jpg" for texture in ("banded", "dotted") for number in (2, 4, 5)
    ]
    found = pictures(*(f"dtd/images/{name}" for name in names))
    found["dtd/labels/labels_joint_anno.txt"] = lines(*(f"{name} {name.split('/')[0]} " for name in names))
    for turn in (1, 2, 10):
        for at, split in enumerate(("train", "val", "test")):
            found[f"dtd/labels/{split}{turn}.txt"] = lines(*names[(at + turn - 1) % 3 :: 3])
    return found


def celeba() -> Files:
    """https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, as torchvision reads it."""
    names = [f"00000{number}.jpg" for number in range(1, 5)]
    flags = ["-1  1 -1", " 1  1  1", "-1 -1 -1", " 1 -1 -1"]
    return pictures(*(f"img_align_celeba/{name}" for name in names)) | {
        "list_attr_celeba.txt": lines("4", "Bald Smiling Young ", *joined(" ", names, flags)),
        "identity_CelebA.txt": lines(*joined(" ", names, (2880, 2937, 8692, 2880))),
        "list_bbox_celeba.txt": lines(
            "4", "image_id x_1 y_1 width height", *(f"{name} 95 71 226 313" for name in names)
        ),
        "list_landmarks_align_celeba.txt": lines(
            "4", "lefteye_x lefteye_y nose_x nose_y", *(f"{name} 69 109 106 113" for name in names)
        ),
        "list_eval_partition.txt": lines(*joined(" ", names, (0, 0, 1, 2))),
    }  # fmt: skip


def celeba_of_kaggle() -> Files:
    """https://www.kaggle.com/datasets/jessicali9530/celeba-dataset."""
    names = [f"00000{number}.jpg" for number in range(1, 5)]
    flags = ["-1,1,-1", "1,1,1", "-1,-1,-1", "1,-1,-1"]
    return pictures(*(f"img_align_celeba/img_align_celeba/{name}" for name in names)) | {
        "list_attr_celeba.csv": lines("image_id,Bald,Smiling,Young", *joined(",", names, flags)),
        "list_bbox_celeba.csv": lines(
            "image_id,x_1,y_1,width,height", *(f"{name},95,71,226,313" for name in names)
        ),
        "list_eval_partition.csv": lines("image_id,partition", *joined(",", names, (0, 0, 1, 2))),
    }  # fmt: skip


_PETS: Counts = {"train": {"cat": 2, "dog": 1}, "validation": {"dog": 1}}
_CIFAR10: Counts = {"train": {"airplane": 1, "bird": 3}, "test": {"airplane": 1}}
_CIFAR100: Counts = {"train": {"apple": 1, "bee": 2}, "test": {"apple": 1}}
_ATTRIBUTES: Counts = {
    "train": {"Smiling": 1, "Bald, Smiling, Young": 1}, "validation": {"": 1}, "test": {"Bald": 1},
}  # fmt: skip


def places365() -> Files:
    """http://places2.csail.mit.edu/download.html: high resolution, as torchvision reads it."""
    train = ["/a/airfield/00000001.jpg", "/a/airfield/00000002.jpg", "/b/bazaar/indoor/00000001.jpg"]
    val = ["Places365_val_00000001.jpg", "Places365_val_00000002.jpg"]
    found = pictures(
        *(f"data_large_standard{name}" for name in train), *(f"val_large/{name}" for name in val)
    )
    return found | pictures("test_large/Places365_test_00000001.jpg") | {
        "categories_places365.txt": lines("/a/airfield 0", "/b/bazaar/indoor 1"),
        "places365_train_standard.txt": lines(*(f"{name} {at // 2}" for at, name in enumerate(train))),
        "places365_val.txt": lines(f"{val[0]} 1", f"{val[1]} 0"),
        "places365_test.txt": lines("Places365_test_00000001.jpg"),
    }  # fmt: skip


def places365_small() -> Files:
    """The same at 256 x 256 with folders of classes: places365standard_easyformat.tar."""
    return pictures(
        "places365_standard/train/airfield/00000001.jpg",
        "places365_standard/train/bazaar-indoor/00000001.jpg",
        "places365_standard/val/airfield/Places365_val_00000435.jpg",
    ) | {
        "places365_standard/train.txt": lines(
            "train/airfield/00000001.jpg", "train/bazaar-indoor/00000001.jpg"
        ),
        "places365_standard/val.txt": lines("val/airfield/Places365_val_00000435.jpg"),
    }


def wrapped(top: str, *classes: str, ending: str = "jpg") -> Callable[[], Files]:
    """Folders of classes in one folder."""
    return lambda: pictures(*(f"{top}/{name}/{number}.{ending}" for name in classes for number in (1, 2)))


def hmdb() -> Files:
    """https://serre-lab.clps.brown.edu/resource/hmdb-a-large-human-motion-database/, unpacked."""
    films = (f"{name}/A_{name}_{at}.avi" for name in ("brush_hair", "cartwheel") for at in (1, 2))
    return {film: video(range(12 * at, 12 * at + 12), form="avi") for at, film in enumerate(films)}


def ucf() -> Files:
    """https://www.crcv.ucf.edu/data/UCF101.php: videos, and three ways to divide them."""
    films = [f"{name}/v_{name}_g01_c0{at}.avi" for name in ("Archery", "Biking") for at in (1, 2)]
    lists = {f"ucfTrainTestlist/testlist0{at}.txt": lines(*films) for at in (1, 2, 3)}
    return lists | {f"UCF-101/{film}": b"" for film in films}


def gtsrb() -> Files:
    """https://benchmark.ini.rub.de/gtsrb_dataset.html, unpacked side by side."""
    head = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"
    found: Files = {}
    for number in ("00000", "00001", "00010"):
        names = [f"{track:05d}_00000.ppm" for track in range(2)]
        folder = f"GTSRB/Final_Training/Images/{number}"
        found |= pictures(*(f"{folder}/{name}" for name in names))
        found[f"{folder}/GT-{number}.csv"] = lines(
            head, *(f"{name};8;8;1;1;6;6;{int(number)}" for name in names)
        )
    names = [f"{number:05d}.ppm" for number in range(3)]
    found |= pictures(*(f"GTSRB/Final_Test/Images/{name}" for name in names))
    found["GTSRB/Final_Test/Images/GT-final_test.test.csv"] = lines(
        head.removesuffix(";ClassId"), *(f"{name};8;8;1;1;6;6" for name in names)
    )
    rows = [f"{name};8;8;1;1;6;6;{label}" for name, label in zip(names, (10, 1, 0), strict=True)]
    return found | {"GT-final_test.csv": lines(head, *rows)}


def gtsrb_of_kaggle() -> Files:
    """https://www.kaggle.com/datasets/meowmeowmeowmeowmeow/gtsrb-german-traffic-sign."""
    head = "Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId,Path"
    train = [f"Train/{label}/0000{label}_0000{number}.png" for label in (0, 20) for number in (0, 1)]
    test = ["Test/00000.png", "Test/00001.png"]
    return pictures(*train, *test, "Meta/0.png", "Meta/20.png") | {
        "Train.csv": lines(head, *(f"8,8,1,1,6,6,{name.split('/')[1]},{name}" for name in train)),
        "Test.csv": lines(head, f"8,8,1,1,6,6,20,{test[0]}", f"8,8,1,1,6,6,0,{test[1]}"),
        "Meta.csv": lines("Path,ClassId,ShapeId", "Meta/0.png,0,1", "Meta/20.png,20,1"),
    }  # fmt: skip


def cats_and_dogs() -> Files:
    """https://www.kaggle.com/c/dogs-vs-cats/data."""
    train = [f"train/{pet}.{number}.jpg" for pet in ("cat", "dog") for number in range(3)]
    return pictures(*train, "test1/1.jpg") | {
        "sampleSubmission.csv": lines("id,label", "1,0"),
    }  # fmt: skip


def plants() -> Files:
    """https://www.kaggle.com/c/plant-pathology-2020-fgvc7/data."""
    head = "image_id,healthy,multiple_diseases,rust,scab"
    flags = ["0,0,0,1", "0,1,0,0", "1,0,0,0", "0,0,1,0"]
    return pictures(
        *(f"images/Train_{at}.jpg" for at in range(4)), "images/Test_0.jpg", "images/Test_1.jpg"
    ) | {
        "train.csv": lines(head, *(f"Train_{at},{row}" for at, row in enumerate(flags))),
        "test.csv": lines("image_id", "Test_0", "Test_1"),
        "sample_submission.csv": lines(head, *(f"Test_{at},0.25,0.25,0.25,0.25" for at in range(2))),
    }


def ham10000() -> Files:
    """https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000."""
    names = [f"ISIC_002741{number}" for number in range(4)]
    return pictures(
        *(f"HAM10000_images_part_{1 + at // 2}/{name}.jpg" for at, name in enumerate(names))
    ) | {
        "HAM10000_metadata.csv": lines(
            "lesion_id,image_id,dx,dx_type,age,sex,localization",
            *(
                f"HAM_000{at // 2},{name},{'bkl' if at < 3 else 'nv'},histo,80.0,male,scalp"
                for at, name in enumerate(names)
            ),
        ),
        "hmnist_8_8_L.csv": lines("pixel0000,pixel0001,label", "169,171,2", "25,25,2"),
    }  # fmt: skip


def aptos() -> Files:
    """https://www.kaggle.com/c/aptos2019-blindness-detection/data."""
    names = ["000c1434d8d7", "001639a390f0", "0024cdab0c1e"]
    return pictures(*(f"train_images/{name}.png" for name in names), "test_images/0005cfc8afb6.png") | {
        "train.csv": lines("id_code,diagnosis", *(f"{name},{at % 2 * 4}" for at, name in enumerate(names))),
        "test.csv": lines("id_code", "0005cfc8afb6"),
        "sample_submission.csv": lines("id_code,diagnosis", "0005cfc8afb6,0"),
    }


def inaturalist() -> Files:
    """https://github.com/visipedia/inat_comp/tree/master/2021."""
    categories = '[{"id": 0, "name": "Lumbricus terrestris"}, {"id": 4, "name": "Sabella"}]'

    def document(names: Iterable[tuple[str, int]]) -> bytes:
        images, notes = [], []
        for at, (name, category) in enumerate(names):
            images.append(f'{{"id": {at}, "width": 8, "height": 8, "file_name": "{name}"}}')
            notes.append(f'{{"id": {at}, "image_id": {at}, "category_id": {category}}}')
        return (
            f'{{"info": {{}}, "images": [{", ".join(images)}], "categories": {categories}, '
            f'"annotations": [{", ".join(notes)}]}}'
        ).encode()

    train = [
        ("train/00000_Lumbricus/a.jpg", 0),
        ("train/00004_Sabella/b.jpg", 4),
        ("train/00004_Sabella/c.jpg", 4),
    ]
    val = [("val/00004_Sabella/d.jpg", 4)]
    return pictures(*(name for name, _ in train + val), "public_test/e.jpg") | {
        "train.json": document(train),
        "val.json": document(val),
    }  # fmt: skip


def aircraft() -> Files:
    """https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/: variants, families and manufacturers."""
    names = ["0034309", "0034958", "1025794"]
    found = pictures(*(f"data/images/{name}.jpg" for name in names))
    for of, values in (
        ("variant", ("707-320", "A340-300", "707-320")),
        ("family", ("Boeing 707", "A340", "Boeing 707")),
    ):
        rows = [f"{name} {value}" for name, value in zip(names, values, strict=True)]
        for split, some in (
            ("train", rows[:1]),
            ("val", rows[1:2]),
            ("trainval", rows[:2]),
            ("test", rows[2:]),
        ):
            found[f"data/images_{of}_{split}.txt"] = lines(*some)
    return found | {"data/variants.txt": lines("707-320", "A340-300")}


def idx(values: np.ndarray) -> bytes:
    """An IDX file of bytes, compressed by gzip."""
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(head + values.astype(np.uint8).tobytes())


def noise(*shape: int) -> np.ndarray:
    """Pixels that no other call gives: uint8."""
    return np.random.default_rng(next(_seeds)).integers(0, 256, shape, np.uint8)


def mnist() -> Files:
    """The files of MNIST and Fashion-MNIST."""
    return {
        "train-images-idx3-ubyte.gz": idx(noise(4, 28, 28)),
        "train-labels-idx1-ubyte.gz": idx(np.array([5, 0, 4, 5])),
        "t10k-images-idx3-ubyte.gz": idx(noise(2, 28, 28)),
        "t10k-labels-idx1-ubyte.gz": idx(np.array([7, 0])),
    }


def svhn() -> Files:
    """http://ufldl.stanford.edu/housenumbers/, format 2."""
    labels = {"train": [1, 10, 9], "test": [10]}
    return {
        f"{split}_32x32.mat": matlab(X=noise(32, 32, 3, len(some)), y=np.array(some, np.uint8)[:, np.newaxis])
        for split, some in labels.items()
    }


def cifar10() -> Files:
    """https://www.cs.toronto.edu/~kriz/cifar.html, the version for Python."""
    top = "cifar-10-batches-py"
    found = {f"{top}/batches.meta": _pickled({b"label_names": [b"airplane", b"bird"], b"num_vis": 3072})}
    for name, labels in (("data_batch_1", [1, 0]), ("data_batch_2", [1, 1]), ("test_batch", [0])):
        found[f"{top}/{name}"] = _pickled(
            {
                b"batch_label": b"x",
                b"labels": labels,
                b"data": noise(len(labels), 3072),
                b"filenames": [b"a.png"],
            }
        )
    return found | {f"{top}/readme.html": b"<html>"}


def cifar100() -> Files:
    """https://www.cs.toronto.edu/~kriz/cifar.html, the version for Python."""
    top = "cifar-100-python"
    names = {b"fine_label_names": [b"apple", b"bee"], b"coarse_label_names": [b"fruit"]}
    found = {f"{top}/meta": _pickled(names), f"{top}/file.txt~": b""}
    for name, labels in (("train", [1, 0, 1]), ("test", [0])):
        coarse = [0] * len(labels)
        found[f"{top}/{name}"] = _pickled(
            {b"fine_labels": labels, b"coarse_labels": coarse, b"data": noise(len(labels), 3072)}
        )
    return found


def _pickled(value: object) -> bytes:
    """The pickle that Python 2 wrote, in which texts are bytes (protocol 2)."""
    return b"\x80\x02" + _opcodes(value) + b"."


def _opcodes(value: object) -> bytes:
    if isinstance(value, dict):
        return b"}(" + b"".join(_opcodes(one) for pair in value.items() for one in pair) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_opcodes, value)) + b"e"
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, np.ndarray):
        shape = b"(" + b"".join(map(_opcodes, value.shape)) + b"t"
        kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        return made + b"(K\x01" + shape + kind + b"\x89" + _opcodes(value.tobytes()) + b"tb"
    assert isinstance(value, int)
    return b"J" + struct.pack("<i", value)


def cifar10_binary() -> Files:
    """https://www.cs.toronto.edu/~kriz/cifar.html, the binary version."""
    top = "cifar-10-batches-bin"

    def batch(*labels: int) -> bytes:
        return b"".join(bytes([label]) + noise(3072).tobytes() for label in labels)

    return {
        f"{top}/batches.meta.txt": lines("airplane", "bird", ""),
        f"{top}/data_batch_1.bin": batch(1, 0),
        f"{top}/data_batch_2.bin": batch(1, 1),
        f"{top}/test_batch.bin": batch(0),
    }


def cifar100_binary() -> Files:
    """https://www.cs.toronto.edu/~kriz/cifar.html, the binary version."""
    top = "cifar-100-binary"

    def batch(*labels: int) -> bytes:
        return b"".join(bytes([9, label]) + noise(3072).tobytes() for label in labels)

    return {
        f"{top}/coarse_label_names.txt": lines("fruit"),
        f"{top}/fine_label_names.txt": lines("apple", "bee"),
        f"{top}/train.bin": batch(1, 0, 1),
        f"{top}/test.bin": batch(0),
    }


def stl10() -> Files:
    """https://cs.stanford.edu/~acoates/stl10/, the binary files."""
    top = "stl10_binary"
    return {
        f"{top}/class_names.txt": lines("airplane", "bird"),
        f"{top}/train_X.bin": noise(3, 3, 96, 96).tobytes(),
        f"{top}/train_y.bin": bytes([2, 1, 2]),
        f"{top}/test_X.bin": noise(1, 3, 96, 96).tobytes(),
        f"{top}/test_y.bin": bytes([1]),
        f"{top}/unlabeled_X.bin": noise(1, 3, 96, 96).tobytes(),
        f"{top}/fold_indices.txt": lines("0 1", "1 2"),
    }


def image_folder_of_hugging_face() -> Files:
    """https://huggingface.co/docs/datasets/image_dataset#imagefolder."""
    found: Files = {}
    for split, labels in (("train", ("cat", "dog", "cat")), ("test", ("dog",))):
        names = [f"{number:04d}.png" for number in range(len(labels))]
        found |= pictures(*(f"{split}/{name}" for name in names))
        found[f"{split}/metadata.csv"] = lines("file_name,label", *joined(",", names, labels))
    return found


def shards_of_hugging_face() -> Files:
    """Parquet shards with a ClassLabel, as ``push_to_hub`` writes them."""
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    found: Files = {"README.md": b"---\nlicense: mit\n---\n"}
    for split, labels in (("train", [0, 1, 0]), ("validation", [1])):
        images = [{"bytes": picture(), "path": None} for _ in labels]
        table = pa.table({"image": images, "label": pa.array(labels, pa.int64())})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        sink = io.BytesIO()
        pq.write_table(table, sink)
        found[f"data/{split}-00000-of-00001.parquet"] = sink.getvalue()
    return found


def saved_to_disk() -> Files:
    """A DatasetDict that ``save_to_disk`` wrote: https://huggingface.co/docs/datasets/process#save."""
    features = {
        "image": {"_type": "Image"},
        "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    }
    found: Files = {"dataset_dict.json": b'{"splits": ["train", "test"]}'}
    for split, labels in (("train", [0, 1, 0]), ("test", [1])):
        images = [{"bytes": picture(), "path": None} for _ in labels]
        table = pa.table({"image": images, "label": pa.array(labels, pa.int64())})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        found[f"{split}/data-00000-of-00001.arrow"] = sink.getvalue()
        found[f"{split}/dataset_info.json"] = json.dumps({"features": features}).encode()
        found[f"{split}/state.json"] = b'{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}'
    return found


def hub_cache() -> Files:
    """~/.cache/huggingface/hub/datasets--org--name of the library huggingface_hub."""
    found = {"refs/main": b"abc1"} | pictures("snapshots/abc0/cat/1.jpg", "snapshots/abc0/dog/1.jpg")
    for name, data in shards_of_hugging_face().items():
        found[f"blobs/{hashlib.sha256(data).hexdigest()}"] = data
        found[f"snapshots/abc1/{name}"] = (
            b"../" * (2 + name.count("/")) + b"blobs/" + hashlib.sha256(data).hexdigest().encode()
        )
    return found


def packed(build: Callable[[], Files], top: str = "photos") -> Callable[[], Files]:
    """The files in a zip archive, in a folder."""

    def pack() -> Files:
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w") as archive:
            for name, data in build().items():
                archive.writestr(f"{top}/{name}", data)
        return {f"{top}.zip": sink.getvalue()}

    return pack


def web_dataset() -> Files:
    """https://github.com/webdataset/webdataset: shards with .jpg and .cls of each sample."""
    found: Files = {}
    for shard, labels in (("train-000000", (0, 1, 1)), ("val-000000", (0,))):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w") as archive:
            for number, label in enumerate(labels):
                for ending, data in (("jpg", picture()), ("cls", str(label).encode())):
                    info = tarfile.TarInfo(f"{number:06d}.{ending}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
        found[f"{shard}.tar"] = sink.getvalue()
    return found


def fairface() -> Files:
    """https://github.com/joojs/fairface: age, gender and race."""
    head = "file,age,gender,race,service_test"
    return pictures("train/1.jpg", "train/2.jpg", "val/1.jpg") | {
        "fairface_label_train.csv": lines(
            head, "train/1.jpg,50-59,Male,East Asian,True", "train/2.jpg,30-39,Female,Indian,False"
        ),
        "fairface_label_val.csv": lines(head, "val/1.jpg,3-9,Male,East Asian,False"),
    }


def utkface() -> Files:
    """https://susanqq.github.io/UTKFace/: age, gender, race and date in the names."""
    return pictures(
        *(f"UTKFace/{age}_{age % 2}_{age % 3}_2017010321{age}.jpg.chip.jpg" for age in (10, 26, 39))
    )


def tensorflow_dataset() -> Files:
    """A folder of https://www.tensorflow.org/datasets/external_tfrecord."""
    with tempfile.TemporaryDirectory() as place:
        splits = {"train": [plain_records(3)], "test": [plain_records(1, first=3)]}
        make_tfds(Path(place), splits, names={"label": CLASSES})
        return {str(path.relative_to(place)): path.read_bytes() for path in Path(place).rglob("*.*")}


def nabirds() -> Files:
    """https://dl.allaboutbirds.org/nabirds."""
    places = ["0817/0000139e", "0817/000050f2", "0860/00010089"]
    ids = [f"{place[5:]}-21dc" for place in places]
    top = "nabirds"
    return pictures(*(f"{top}/images/{place}.jpg" for place in places)) | {
        f"{top}/images.txt": lines(*joined(" ", ids, (f"{place}.jpg" for place in places))),
        f"{top}/image_class_labels.txt": lines(*joined(" ", ids, (817, 817, 860))),
        f"{top}/train_test_split.txt": lines(*joined(" ", ids, (0, 1, 1))),
        f"{top}/sizes.txt": lines(*(f"{one} 8 8" for one in ids)),
        f"{top}/classes.txt": lines("0 Birds", "817 Oak Titmouse", "860 House Wren"),
    }


def indoor() -> Files:
    """MIT Indoor 67: https://web.mit.edu/torralba/www/indoor.html."""
    names = [f"{room}/{room}{number}.jpg" for room in ("bakery", "bar") for number in (1, 2, 3)]
    return pictures(*(f"Images/{name}" for name in names)) | {
        "TrainImages.txt": lines(*names[:2], names[3]),
        "TestImages.txt": lines(names[2], names[5]),
    }


def domain_net() -> Files:
    """A domain of http://ai.bu.edu/M3SDA/, with its lists."""
    names = [
        f"real/{name}/real_00{at}_{number}.jpg {at}"
        for at, name in enumerate(("anvil", "axe"), 1)
        for number in (1, 2, 3)
    ]
    return pictures(*(name.split()[0] for name in names)) | {
        "real_train.txt": lines(*names[:2], *names[3:5]), "real_test.txt": lines(names[2], names[5]),
    }  # fmt: skip


def scenes() -> Files:
    """https://www.kaggle.com/datasets/puneet6060/intel-image-classification."""
    found = pictures("seg_pred/seg_pred/3.jpg")
    for split in ("train", "test"):
        found |= pictures(*(f"seg_{split}/seg_{split}/{name}/1.jpg" for name in ("sea", "street")))
    return found


def chests() -> Files:
    """NIH ChestX-ray14: https://nihcc.app.box.com/v/ChestXray-NIHCC."""
    names = [f"0000000{number}_000.png" for number in range(4)]
    found = ("Cardiomegaly", "Cardiomegaly|Emphysema", "No Finding", "Hernia")
    return pictures(*(f"images_00{1 + at // 2}/images/{name}" for at, name in enumerate(names))) | {
        "Data_Entry_2017.csv": lines(
            "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age",
            *joined(",", names, found, range(4), range(4), range(50, 54)),
        ),
        "train_val_list.txt": lines(*names[:3]),
        "test_list.txt": lines(names[3]),
    }  # fmt: skip


def cassava() -> Files:
    """https://www.kaggle.com/c/cassava-leaf-disease-classification/data."""
    names = [f"train_images/{number}.jpg" for number in (1000015157, 1000201771)]
    return pictures(*names, "test_images/2216849948.jpg") | {
        "train.csv": lines("image_id,label", "1000015157.jpg,0", "1000201771.jpg,3"),
        "sample_submission.csv": lines("image_id,label", "2216849948.jpg,4"),
        "label_num_to_disease_map.json": b'{"0": "Bacterial Blight (CBB)", "3": "Mosaic Disease (CMD)"}',
    }  # fmt: skip


def amazon() -> Files:
    """https://www.kaggle.com/c/planet-understanding-the-amazon-from-space/data."""
    return pictures(*(f"train-jpg/train_{number}.jpg" for number in range(3)), "test-jpg/test_0.jpg") | {
        "train_classes.csv": lines(
            "image_name,tags", "train_0,haze primary", "train_1,clear", "train_2,clear"
        ),
        "sample_submission_v2.csv": lines("image_name,tags", "test_0,primary clear"),
    }


def imagenet_100() -> Files:
    """https://www.kaggle.com/datasets/ambityga/imagenet100: the train split in parts."""
    return pictures(
        *(f"train.X{part}/n0{part}558993/{number}.JPEG" for part in (1, 2) for number in (1, 2)),
        *(f"val.X/n0{part}558993/1.JPEG" for part in (1, 2)),
    )


def mini_imagenet() -> Files:
    """Splits of Ravi and Larochelle: a table a split, and one folder of images."""
    names = [f"n0153282900000{number:03}.jpg" for number in range(6)]
    found = pictures(*(f"images/{name}" for name in names))
    for at, split in enumerate(("train", "val", "test")):
        some = names[2 * at : 2 * at + 2]
        found[f"{split}.csv"] = lines("filename,label", *(f"{name},n0{at}532829" for name in some))
    return found


def emnist() -> Files:
    """gzip.zip of https://www.nist.gov/itl/products-and-services/emnist-dataset: several data sets."""
    found: Files = {}
    for of in ("balanced", "letters"):
        found[f"gzip/emnist-{of}-train-images-idx3-ubyte.gz"] = idx(noise(2, 28, 28))
        found[f"gzip/emnist-{of}-train-labels-idx1-ubyte.gz"] = idx(np.array([1, 2]))
    return found


def kinds_of_leaves() -> Files:
    """PlantVillage of Kaggle: the same images in colour, in grey and cut out."""
    leaves = [f"{form}/{leaf}" for form in ("color", "grayscale") for leaf in ("scab", "rust")]
    return pictures(*(f"plantvillage dataset/{leaf}/1.JPG" for leaf in leaves))


def mask(value: int) -> bytes:
    """A mask of one value."""
    sink = io.BytesIO()
    Image.fromarray(np.full((8, 8), value, np.uint8)).save(sink, "PNG")
    return sink.getvalue()


def cityscapes() -> Files:
    """https://github.com/mcordts/cityscapesScripts#dataset-structure."""
    found: Files = {}
    for split, city, value in (("train", "aachen", 7), ("train", "bochum", 33), ("val", "lindau", 0)):
        name = f"{split}/{city}/{city}_000000_000019"
        found |= pictures(f"leftImg8bit/{name}_leftImg8bit.png", f"gtFine/{name}_gtFine_color.png")
        found |= {f"gtFine/{name}_gtFine_{of}.png": mask(value) for of in ("labelIds", "instanceIds")}
        found[f"gtFine/{name}_gtFine_polygons.json"] = b'{"imgHeight": 8, "imgWidth": 8, "objects": []}'
    return found


def ade20k() -> Files:
    """ADEChallengeData2016 of http://sceneparsing.csail.mit.edu/."""
    top = "ADEChallengeData2016"
    found: Files = {
        f"{top}/objectInfo150.txt": lines(
            "Idx\tRatio\tTrain\tVal\tStuff\tName",
            "1\t0.1576\t11664\t1172\t1\twall",
            "2\t0.1072\t6046\t612\t1\tbuilding, edifice",
        ),
        f"{top}/sceneCategories.txt": lines(
            "ADE_train_00000001 airport_terminal", "ADE_train_00000002 street", "ADE_val_00000001 street"
        ),
    }
    for name in ("training/ADE_train_00000001", "training/ADE_train_00000002", "validation/ADE_val_00000001"):
        found |= pictures(f"{top}/images/{name}.jpg") | {f"{top}/annotations/{name}.png": mask(2)}
    return found


def ade20k_in_full() -> Files:
    """https://groups.csail.mit.edu/vision/datasets/ADE20K/: masks in red and green beside the images."""
    folder = "ADE20K_2021_17_01/images/ADE/training/urban"
    return {
        f"{folder}/{scene}/ADE_train_0000000{number}{ending}": picture("png" if "png" in ending else "jpg")
        for number, scene in ((1, "street"), (2, "plaza"))
        for ending in (".jpg", "_seg.png", "_parts_1.png")
    }


def deep_fashion() -> Files:
    """https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/AttributePrediction.html, the coarse annotations."""
    names = ["img/Sheer_Blouse/img_00000001.jpg", "img/Blouse/img_00000002.jpg", "img/Jeans/img_00000001.jpg"]
    return pictures(*names) | {
        "Anno_coarse/list_category_cloth.txt": lines(
            "3", "category_name  category_type", "Blouse 1", "Jeans 2", "Tee 1"
        ),
        "Anno_coarse/list_category_img.txt": lines(
            "3", "image_name  category_label", *joined("  ", names, (1, 1, 2))
        ),
        "Eval/list_eval_partition.txt": lines(
            "3", "image_name  evaluation_status", *joined("  ", names, ("train", "val", "test"))
        ),
    }


def classes_of_roboflow() -> Files:
    """The export Multi-Label Classification CSV of Roboflow."""
    found: Files = {"README.roboflow.txt": b"text\n"}
    for split in ("train", "valid", "test"):
        names = [f"{number}_{split}.jpg" for number in (1, 2, 3)]
        found |= pictures(*(f"{split}/{name}" for name in names))
        found[f"{split}/_classes.csv"] = lines(
            "filename, cat, dog", *joined(", ", names, ("1, 0", "1, 1", "0, 0"))
        )
    return found


def matlab(**variables: object) -> bytes:
    """A file of MATLAB, as SciPy writes it."""
    sink = io.BytesIO()
    scipy.io.savemat(sink, variables, do_compression=True)
    return sink.getvalue()


def structures(**fields: Sequence[object]) -> np.ndarray:
    """An array of structures of MATLAB."""
    found = np.empty((1, len(next(iter(fields.values())))), dtype=[(name, object) for name in fields])
    for name, values in fields.items():
        for at, value in enumerate(values):
            found[0, at][name] = value
    return found


def flowers() -> Files:
    """https://www.robots.ox.ac.uk/~vgg/data/flowers/102/."""
    return pictures(*(f"jpg/image_0000{number}.jpg" for number in range(1, 7))) | {
        "imagelabels.mat": matlab(labels=np.array([[77, 77, 1, 1, 102, 77]], np.uint8)),
        "setid.mat": matlab(trnid=np.array([[1, 4]]), valid=np.array([[2]]), tstid=np.array([[6, 5, 3]])),
    }


def cars() -> Files:
    """Stanford Cars, as torchvision reads it."""
    names = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]
    files = {"train": ["00001.jpg", "00002.jpg", "00003.jpg"], "test": ["00001.jpg", "00002.jpg"]}

    def noted(split: str, **classes: Sequence[object]) -> bytes:
        box = [[1] * len(files[split])] * 2
        return matlab(annotations=structures(bbox_x1=box[0], bbox_y1=box[1], **classes, fname=files[split]))

    return pictures(*(f"cars_{split}/{name}" for split, some in files.items() for name in some)) | {
        "devkit/cars_meta.mat": matlab(class_names=np.array([names], dtype=object)),
        "devkit/cars_train_annos.mat": noted("train", **{"class": [2, 1, 2]}),
        "devkit/cars_test_annos.mat": noted("test"),
        "cars_test_annos_withlabels.mat": noted("test", **{"class": [1, 2]}),
    }


def imagenet_with_kit() -> Files:
    """ILSVRC2012_img_train, ILSVRC2012_img_val and ILSVRC2012_devkit_t12, unpacked."""
    kit = "ILSVRC2012_devkit_t12/data"
    codes = ["n02119789", "n02100735"]
    train = [f"train/{code}/{code}_{number}.JPEG" for code in codes for number in (1, 2)]
    val = [f"val/ILSVRC2012_val_0000000{number}.JPEG" for number in (1, 2, 3)]
    return pictures(*train, *val) | {
        f"{kit}/ILSVRC2012_validation_ground_truth.txt": lines("2", "1", "2"),
        f"{kit}/meta.mat": matlab(
            synsets=structures(
                ILSVRC2012_ID=[1, 2], WNID=codes, words=["kit fox, Vulpes macrotis", "English setter"]
            )
        ),
    }


LAYOUTS = [
    Layout("ImageNet (ILSVRC 2012) of Kaggle", imagenet, "lists", {
        "train": {"tench, Tinca tinca": 2, "crane (n02012849)": 2, "crane (n03126707)": 2},
        "validation": {"tench, Tinca tinca": 2, "crane (n03126707)": 1},
    }),
    Layout("ImageNet with its development kit", imagenet_with_kit, "lists", {
        "train": {"kit fox, Vulpes macrotis": 2, "English setter": 2},
        "validation": {"kit fox, Vulpes macrotis": 1, "English setter": 2},
    }),
    Layout("Flowers-102", flowers, "lists", {
        "train": {"77": 1, "1": 1}, "validation": {"77": 1}, "test": {"1": 1, "102": 1, "77": 1},
    }),
    Layout("Stanford Cars", cars, "lists", {
        "train": {"Acura RL Sedan 2012": 2, "AM General Hummer SUV 2000": 1},
        "test": {"Acura RL Sedan 2012": 1, "AM General Hummer SUV 2000": 1},
    }),
    Layout("NABirds", nabirds, "lists", {
        "train": {"Oak Titmouse": 1, "House Wren": 1}, "test": {"Oak Titmouse": 1},
    }),
    Layout("MIT Indoor 67", indoor, "lists", {
        "train": {"bakery": 2, "bar": 1}, "test": {"bakery": 1, "bar": 1},
    }),
    Layout("DomainNet", domain_net, "lists", {
        "train": {"anvil": 2, "axe": 2}, "test": {"anvil": 1, "axe": 1},
    }),
    Layout("Intel scenes", scenes, "lists", {
        "train": {"sea": 1, "street": 1}, "test": {"sea": 1, "street": 1},
    }),
    Layout("Stanford Dogs", wrapped("Images", "n02085620-Chihuahua", "n02110958-pug"), "lists", {
        None: {"n02085620-Chihuahua": 2, "n02110958-pug": 2},
    }),
    Layout("ChestX-ray14", chests, "lists", {
        "train": {"Cardiomegaly": 1, "Cardiomegaly, Emphysema": 1, "No Finding": 1}, "test": {"Hernia": 1},
    }),
    Layout("Cassava", cassava, "table", {None: {"Bacterial Blight (CBB)": 1, "Mosaic Disease (CMD)": 1}}),
    Layout("Amazon from space", amazon, "table", {None: {"haze, primary": 1, "clear": 2}}),
    Layout("ImageNet-100", imagenet_100, "lists", {
        "train": {"n01558993": 2, "n02558993": 2}, "validation": {"n01558993": 1, "n02558993": 1},
    }),
    Layout("mini-ImageNet", mini_imagenet, "lists", {
        "train": {"n00532829": 2}, "validation": {"n01532829": 2}, "test": {"n02532829": 2},
    }),
    Layout("Tiny ImageNet", tiny_imagenet, "lists", {
        "train": {"goldfish, Carassius auratus": 2, "crane": 2},
        "validation": {"goldfish, Carassius auratus": 1, "crane": 2},
    }),
    Layout("CUB-200-2011", cub, "lists", {
        "train": {"001.Albatross": 1, "002.Auk": 1}, "test": {"001.Albatross": 2, "002.Auk": 2},
    }),
    Layout("Oxford-IIIT Pet", pets, "lists", {
        "train": {"Abyssinian": 1, "american_bulldog": 1}, "test": {"Abyssinian": 1, "american_bulldog": 1},
    }),
    Layout("DeepFashion", deep_fashion, "lists", {
        "train": {"Blouse": 1}, "validation": {"Blouse": 1}, "test": {"Jeans": 1},
    }),
    Layout("Food-101", food, "lists", {
        "train": {"apple_pie": 2, "waffles": 1}, "test": {"apple_pie": 1, "waffles": 2},
    }),
    Layout("DTD", dtd, "lists", {
        split: {"banded": 1, "dotted": 1} for split in ("train", "validation", "test")
    }),
    Layout("Roboflow, several classes", classes_of_roboflow, "lists", {
        split: {"cat": 1, "cat, dog": 1, "": 1} for split in ("train", "validation", "test")
    }),
    Layout("CelebA", celeba, "lists", _ATTRIBUTES),
    Layout("CelebA of Kaggle", celeba_of_kaggle, "lists", _ATTRIBUTES),
    Layout("Places365", places365, "lists", {
        "train": {"airfield": 2, "bazaar/indoor": 1}, "validation": {"airfield": 1, "bazaar/indoor": 1},
    }),
    Layout("Places365, small images", places365_small, "lists", {
        "train": {"airfield": 1, "bazaar-indoor": 1}, "validation": {"airfield": 1},
    }),
    Layout("Caltech-101", wrapped("101_ObjectCategories", "accordion", "BACKGROUND_Google"), "lists", {
        None: {"accordion": 2, "BACKGROUND_Google": 2},
    }),
    Layout("Caltech-256", wrapped("256_ObjectCategories", "001.ak47", "257.clutter"), "lists", {
        None: {"001.ak47": 2, "257.clutter": 2},
    }),
    Layout("EuroSAT", wrapped("2750", "AnnualCrop", "Forest"), "lists", {
        None: {"AnnualCrop": 2, "Forest": 2},
    }),
    Layout("GTSRB", gtsrb, "lists", {
        "train": {"00000": 2, "00001": 2, "00010": 2}, "test": {"00000": 1, "00001": 1, "00010": 1},
    }),
    Layout("GTSRB of Kaggle", gtsrb_of_kaggle, "lists", {
        "train": {"0": 2, "20": 2}, "test": {"0": 1, "20": 1},
    }),
    Layout("Plant Pathology 2020", plants, "lists", {
        None: {"healthy": 1, "multiple_diseases": 1, "rust": 1, "scab": 1},
    }),
    Layout("HAM10000", ham10000, "lists", {None: {"bkl": 3, "nv": 1}}),
    Layout("APTOS 2019", aptos, "table", {None: {"0": 2, "4": 1}}),
    Layout("iNaturalist 2021", inaturalist, "lists", {
        "train": {"Lumbricus terrestris": 1, "Sabella": 2}, "validation": {"Sabella": 1},
    }),
    Layout("MNIST", mnist, "arrays", {"train": {"0": 1, "4": 1, "5": 2}, "test": {"7": 1, "0": 1}}),
    Layout("SVHN", svhn, "arrays", {"train": {"1": 1, "0": 1, "9": 1}, "test": {"0": 1}}),
    Layout("CIFAR-10", cifar10, "cifar", _CIFAR10),
    Layout("CIFAR-10, binary", cifar10_binary, "cifar", _CIFAR10),
    Layout("CIFAR-100", cifar100, "cifar", _CIFAR100),
    Layout("CIFAR-100, binary", cifar100_binary, "cifar", _CIFAR100),
    Layout("STL-10", stl10, "cifar", {"train": {"airplane": 1, "bird": 2}, "test": {"airplane": 1}}),
    Layout("Hugging Face ImageFolder", image_folder_of_hugging_face, "table", {
        "train": {"cat": 2, "dog": 1}, "test": {"dog": 1},
    }),
    Layout("Hugging Face Parquet", shards_of_hugging_face, "parquet", _PETS),
    Layout("Hugging Face hub cache", hub_cache, "parquet", _PETS),
    Layout("Hugging Face save_to_disk", saved_to_disk, "parquet", {
        "train": {"cat": 2, "dog": 1}, "test": {"dog": 1},
    }),
    Layout("TensorFlow Datasets", tensorflow_dataset, "tfds", {
        "train": {"hat": 1, "cap": 1, "coat": 1}, "test": {"hat": 1},
    }),
    Layout("ImageFolder in a zip archive", packed(wrapped("train", "cat", "dog")), "archive", {
        "train": {"cat": 2, "dog": 2},
    }),
    Layout("WebDataset", web_dataset, "archive", {"train": {"0": 1, "1": 2}, "validation": {"0": 1}}),
    Layout("Cityscapes", cityscapes, "masks", {"train": {"": 2}, "validation": {"": 1}}, (
        "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign",
        "vegetation", "terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle",
        "bicycle",
    )),
    Layout("ADE20K (SceneParse150)", ade20k, "masks", {"train": {"": 2}, "validation": {"": 1}}, (
        "wall", "building, edifice",
    )),
    Layout("ADE20K in full", ade20k_in_full, "asks"),
    Layout("FairFace", fairface, "asks"),
    Layout("UTKFace", utkface, "asks"),
    Layout("EMNIST", emnist, "asks"),
    Layout("UCF-101", ucf, "asks"),
    Layout("HMDB51", hmdb, "video", {None: {"brush_hair": 4, "cartwheel": 4}}),
    Layout("PlantVillage", kinds_of_leaves, "asks"),
    Layout("FGVC-Aircraft", aircraft, "asks"),
    Layout("Dogs vs. Cats", cats_and_dogs, "lists", {None: {"cat": 3, "dog": 3}}),
]  # fmt: skip
