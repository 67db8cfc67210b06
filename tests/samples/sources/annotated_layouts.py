"""Public layouts of data sets with objects in their images, made small as in ``layouts``."""

from __future__ import annotations

import json
from typing import Any

from tests.samples.sources.layouts import Counts, Files, Layout, lines, mask, pictures

_TWO: Counts = {"train": {"car": 2}, "validation": {"car": 2}}


def voc() -> Files:
    """VOC 2012 of http://host.robots.ox.ac.uk/pascal/VOC/."""
    top = "VOCdevkit/VOC2012"
    found: Files = {}
    for number, name in enumerate(("2008_000001", "2008_000002", "2008_000003")):
        found |= pictures(f"{top}/JPEGImages/{name}.jpg")
        found[f"{top}/Annotations/{name}.xml"] = (
            f"<annotation><folder>VOC2012</folder><filename>{name}.jpg</filename><size><width>8</width>"
            "<height>8</height><depth>3</depth></size><object><name>"
            f"{'cat' if number else 'dog'}</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>6</xmax>"
            "<ymax>5</ymax></bndbox></object></annotation>"
        ).encode()
    found |= pictures(f"{top}/SegmentationClass/2008_000002.png", f"{top}/SegmentationObject/2008_000002.png")
    sets = f"{top}/ImageSets"
    return found | {
        f"{sets}/Main/train.txt": lines("2008_000001", "2008_000002"),
        f"{sets}/Main/val.txt": lines("2008_000003"),
        f"{sets}/Main/trainval.txt": lines("2008_000001", "2008_000002", "2008_000003"),
        f"{sets}/Main/cat_train.txt": lines("2008_000001 -1", "2008_000002  1"),
        f"{sets}/Segmentation/train.txt": lines("2008_000002"),
    }


def coco() -> Files:
    """COCO 2017 of https://cocodataset.org/#download."""
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    found: Files = {}
    for split, numbers in (("train", (9, 25)), ("val", (139,))):
        images = [
            {"id": number, "file_name": f"{number:012d}.jpg", "height": 8, "width": 8} for number in numbers
        ]
        notes = [
            {"id": number, "image_id": number, "category_id": 18, "bbox": [1, 1, 4, 4], "area": 16,
             "iscrowd": 0, "segmentation": [[1, 1, 5, 1, 5, 5, 1, 5]]}
            for number in numbers
        ]  # fmt: skip
        found |= pictures(*(f"{split}2017/{image['file_name']}" for image in images))
        document = {"info": {}, "images": images, "annotations": notes, "categories": categories}
        found[f"annotations/instances_{split}2017.json"] = json.dumps(document).encode()
        captions = [{"id": number, "image_id": number, "caption": "a dog"} for number in numbers]
        found[f"annotations/captions_{split}2017.json"] = json.dumps(
            {"info": {}, "images": images, "annotations": captions}
        ).encode()
    return found


def yolo() -> Files:
    """coco8 of https://docs.ultralytics.com/datasets/detect/coco8/."""
    found = pictures(
        *(f"coco8/images/{split}/{number}.jpg" for split in ("train", "val") for number in (1, 2))
    )
    for split in ("train", "val"):
        found |= {f"coco8/labels/{split}/{number}.txt": b"1 0.5 0.5 0.5 0.5\n" for number in (1, 2)}
    return found | {
        "coco8.yaml": b"path: coco8\ntrain: images/train\nval: images/val\nnames:\n  0: person\n  1: dog\n"
    }


def document(value: Any) -> bytes:
    """A JSON file."""
    return json.dumps(value).encode()


def dota() -> Files:
    """https://captain-whu.github.io/DOTA/dataset.html, version 1.5 with boxes beside the oriented ones."""
    found: Files = {}
    row = "1.0 1.0 5.0 1.0 5.0 5.0 1.0 5.0 car 0"
    for split, number in (("train", 1), ("train", 2), ("val", 3), ("val", 4)):
        found |= pictures(f"{split}/images/P000{number}.png")
        for more in ("", "_hbb"):
            place = f"{split}/labelTxt-v1.5/DOTA-v1.5_{split}{more}"
            found[f"{place}/P000{number}.txt"] = lines("imagesource:GoogleEarth", "gsd:0.146", row)
    return found


def kitti() -> Files:
    """https://www.cvlibs.net/datasets/kitti/eval_object.php?obj_benchmark=2d."""
    row = "Car 0.00 0 -1.57 1.00 1.00 5.50 5.00 2.85 2.63 12.34 0.47 1.49 69.44 -1.56"
    found = pictures(*(f"training/image_2/00000{number}.png" for number in range(3)))
    found |= pictures("testing/image_2/000000.png")
    for number in range(3):
        found[f"training/label_2/00000{number}.txt"] = lines(
            row, "DontCare -1 -1 -10 1 1 2 2 -1 -1 -1 -1000 -1000 -1000 -10"
        )
        found[f"training/calib/00000{number}.txt"] = lines("P0: 7.070493e+02 0 0 0")
    return found


def visdrone() -> Files:
    """https://github.com/VisDrone/VisDrone-Dataset, task 1."""
    found: Files = {}
    for split in ("train", "val"):
        for number in (1, 2):
            top = f"VisDrone2019-DET-{split}"
            found |= pictures(f"{top}/images/000000{number}_{split}.jpg")
            found[f"{top}/annotations/000000{number}_{split}.txt"] = lines(
                "1,1,4,4,1,4,0,0", "2,2,3,3,0,0,0,0,"
            )
    return found


def wider_face() -> Files:
    """http://shuoyang1213.me/WIDERFACE/."""
    found = pictures("WIDER_test/images/0--Parade/0_Parade_9.jpg") | {
        "wider_face_split/wider_face_test_filelist.txt": lines("0--Parade/0_Parade_9.jpg")
    }
    for split in ("train", "val"):
        names = [
            f"0--Parade/0_{split}_1.jpg",
            f"0--Parade/0_{split}_2.jpg",
            f"1--Handshaking/1_{split}_1.jpg",
        ]
        found |= pictures(*(f"WIDER_{split}/images/{name}" for name in names))
        found[f"wider_face_split/wider_face_{split}_bbx_gt.txt"] = lines(
            names[0], "1", "1 1 4 4 2 0 0 0 0 0 ",
            names[1], "2", "1 1 4 4 0 0 0 0 0 0 ", "2 2 3 3 0 0 0 1 0 0 ",
            names[2], "0", "0 0 0 0 0 0 0 0 0 0 ",
        )  # fmt: skip
    return found


def bdd() -> Files:
    """https://doc.bdd100k.com/format.html: detection 2020."""
    found: Files = {}
    lane = {"category": "lane", "poly2d": [{"vertices": [[1, 1], [2, 2]], "types": "LL", "closed": False}]}
    box = {"category": "car", "box2d": {"x1": 1.0, "y1": 1.0, "x2": 5.0, "y2": 5.0}}
    for split in ("train", "val"):
        names = [f"{number}-{split}.jpg" for number in (1, 2)]
        found |= pictures(*(f"bdd100k/images/100k/{split}/{name}" for name in names))
        frames = [
            {"name": name, "attributes": {"weather": "clear"}, "timestamp": 10000, "labels": [box, lane]}
            for name in names
        ]
        found[f"bdd100k/labels/det_20/det_{split}.json"] = document(frames)
    return found


def createml() -> Files:
    """The export CreateML JSON of Roboflow."""
    found: Files = {"README.roboflow.txt": b"text\n"}
    for split in ("train", "valid"):
        found |= pictures(f"{split}/a_{split}.jpg", f"{split}/b_{split}.jpg")
        place = {"x": 4, "y": 4, "width": 4, "height": 4}
        notes = [[{"label": "car", "coordinates": place}]] * 2
        found[f"{split}/_annotations.createml.json"] = document(
            [
                {"image": f"{name}_{split}.jpg", "annotations": note}
                for name, note in zip("ab", notes, strict=True)
            ]
        )
    return found


def crowd_human() -> Files:
    """https://www.crowdhuman.org/download.html."""
    found: Files = {}
    person = {"tag": "person", "hbox": [1, 1, 2, 2], "fbox": [1, 1, 5, 5], "vbox": [1, 1, 4, 4], "extra": {}}
    for split in ("train", "val"):
        names = [f"2736{number},{split}" for number in (1, 2)]
        found |= pictures(*(f"Images/{name}.jpg" for name in names))
        found[f"annotation_{split}.odgt"] = lines(
            *(json.dumps({"ID": name, "gtboxes": [person]}) for name in names)
        )
    return found


def datumaro() -> Files:
    """https://docs.cvat.ai/docs/dataset_management/formats/format-datumaro/."""
    found: Files = {}
    note = {"id": 0, "type": "bbox", "label_id": 0, "bbox": [1.0, 1.0, 4.0, 4.0]}
    labels = {"labels": [{"name": "car", "parent": "", "attributes": []}], "attributes": []}
    for split in ("train", "validation"):
        names = [f"{number}_{split}" for number in (1, 2)]
        found |= pictures(*(f"images/{split}/{name}.jpg" for name in names))
        items = [
            {"id": name, "annotations": [note], "image": {"path": f"{name}.jpg", "size": [8, 8]}}
            for name in names
        ]
        found[f"annotations/{split}.json"] = document(
            {"info": {}, "categories": {"label": labels}, "items": items}
        )
    return found


def labelbox() -> Files:
    """https://docs.labelbox.com/reference/export-image-annotations."""
    note = {"name": "car", "bounding_box": {"top": 1.0, "left": 1.0, "height": 4.0, "width": 4.0}}
    labels = [{"annotations": {"objects": [note], "classifications": []}}]
    rows = [
        {"data_row": {"id": "c1", "external_id": name}, "media_attributes": {"height": 8, "width": 8},
         "projects": {"p1": {"labels": labels}}}
        for name in ("a.jpg", "b.jpg")
    ]  # fmt: skip
    return pictures("images/a.jpg", "images/b.jpg") | {"export.ndjson": lines(*map(json.dumps, rows))}


def sa_1b() -> Files:
    """https://ai.meta.com/datasets/segment-anything-downloads/."""
    found: Files = {}
    for number in (1, 2):
        found |= pictures(f"sa_{number}.jpg")
        runs = {"size": [8, 8], "counts": [9, 4, 51]}
        found[f"sa_{number}.json"] = document(
            {
                "image": {"image_id": number, "width": 8, "height": 8, "file_name": f"sa_{number}.jpg"},
                "annotations": [{"bbox": [1.0, 1.0, 4.0, 4.0], "segmentation": runs, "predicted_iou": 0.9}],
            }
        )
    return found


def supervisely() -> Files:
    """https://developer.supervisely.com/getting-started/supervisely-annotation-format/project-structure."""
    points = {"exterior": [[1, 1], [5, 5]], "interior": []}
    note = {"classTitle": "car", "geometryType": "rectangle", "points": points}
    found: Files = {"meta.json": document({"classes": [{"title": "car", "shape": "rectangle"}], "tags": []})}
    for number in (1, 2):
        found |= pictures(f"ds0/img/{number}.jpg")
        found[f"ds0/ann/{number}.jpg.json"] = document(
            {"description": "", "tags": [], "size": {"height": 8, "width": 8}, "objects": [note]}
        )
    return found


def tt100k() -> Files:
    """https://cg.cs.tsinghua.edu.cn/traffic-sign/."""
    names = ["train/62627.jpg", "train/2.jpg", "test/3.jpg"]
    note = {"category": "pl30", "bbox": {"xmin": 1.0, "ymin": 1.0, "xmax": 5.0, "ymax": 5.0}}
    images = {str(at): {"path": name, "id": at, "objects": [note]} for at, name in enumerate(names)}
    return pictures(*(f"data/{name}" for name in names)) | {
        "data/annotations.json": document({"types": ["pl30"], "imgs": images}),
        "data/train/ids.txt": lines("62627", "2"),
        "data/test/ids.txt": lines("3"),
    }


def vott() -> Files:
    """https://github.com/microsoft/VoTT: the export VoTT JSON."""
    region = {"type": "RECTANGLE", "tags": ["car"],
              "boundingBox": {"height": 4, "width": 4, "left": 1, "top": 1}}  # fmt: skip
    assets = {
        name: {"asset": {"name": f"{name}.jpg", "path": f"file:/C:/x/{name}.jpg",
                         "size": {"width": 8, "height": 8}}, "regions": [region]}
        for name in "ab"
    }  # fmt: skip
    return pictures("a.jpg", "b.jpg") | {
        "proj-export.json": document({"name": "proj", "tags": [{"name": "car"}], "assets": assets})
    }


def masks_of_roboflow() -> Files:
    """The export Semantic Segmentation Masks of Roboflow."""
    found: Files = {"README.roboflow.txt": b"text\n"}
    for split in ("train", "valid"):
        found |= pictures(f"{split}/a_{split}.jpg", f"{split}/b_{split}.jpg")
        found |= {f"{split}/{name}_{split}_mask.png": mask(1) for name in "ab"}
        found[f"{split}/_classes.csv"] = lines("Pixel Value, Class", "0, background", "1, car")
    return found


ANNOTATED = [
    Layout("Roboflow, masks", masks_of_roboflow, "masks", {"train": {"": 2}, "validation": {"": 2}}, (
        "background", "car",
    )),
    Layout("Pascal VOC 2012", voc, "voc", {"train": {"cat": 1, "dog": 1}, "validation": {"cat": 1}}),
    Layout("COCO 2017", coco, "coco", {"train": {"dog": 2}, "validation": {"dog": 1}}),
    Layout("YOLO", yolo, "yolo", {"train": {"dog": 2}, "validation": {"dog": 2}}),
    Layout("DOTA", dota, "box_files", _TWO),
    Layout("KITTI", kitti, "box_files", {None: {"Car": 3}}),
    Layout("VisDrone", visdrone, "box_files", _TWO),
    Layout("WIDER FACE", wider_face, "box_files", {
        "train": {"face": 2, "": 1}, "validation": {"face": 2, "": 1},
    }),
    Layout("BDD100K", bdd, "box_files", _TWO),
    Layout("CreateML", createml, "box_files", _TWO),
    Layout("CrowdHuman", crowd_human, "box_files", {"train": {"person": 2}, "validation": {"person": 2}}),
    Layout("Datumaro", datumaro, "box_files", _TWO),
    Layout("Labelbox", labelbox, "box_files", {None: {"car": 2}}),
    Layout("SA-1B", sa_1b, "box_files", {None: {"object": 2}}),
    Layout("Supervisely", supervisely, "box_files", {None: {"car": 2}}),
    Layout("TT100K", tt100k, "box_files", {"train": {"pl30": 2}, "test": {"pl30": 1}}),
    Layout("VoTT", vott, "box_files", {None: {"car": 2}}),
]  # fmt: skip
