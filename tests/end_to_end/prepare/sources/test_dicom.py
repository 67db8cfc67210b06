"""A folder of DICOM series through prepare: one split a series, and nothing of a patient."""

from __future__ import annotations

import gzip
from pathlib import Path

from shardmill.infra.dataset.catalog import Catalog
from tests.samples.images.dicoms import SECRET, dicom, slice_of
from tests.samples.preparing.prepared import rows, run

NUM_SLICES = 3


def write_series(folder: Path, series: range) -> None:
    """Write series of two classes, half of them as files without an ending, and a report beside them."""
    for number in series:
        place = folder / ("odd" if number % 2 else "even") / f"case-{number}"
        place.mkdir(parents=True)
        for at in range(NUM_SLICES):
            data = dicom(slice_of(number, at), SeriesInstanceUID=f"1.2.{number}", BitsStored=12)
            (place / (f"{at}.dcm" if number % 4 < 2 else f"IM{at}")).write_bytes(data)
    report = dicom(slice_of(0, 0), PixelData=None)
    (folder / "even" / "DICOMDIR").write_bytes(report)


def groups(root: Path) -> dict[str, tuple[str, str]]:
    """Path -> (group, split) of each record."""
    version = Catalog(str(root)).open("d")
    index = {
        row["source_uri"]: row["group"] for shard in version.manifest.shards
        for row in version.index(shard).to_pylist()
    }  # fmt: skip
    return {uri: (index[uri], row["split"]) for uri, row in rows(version).items() if uri in index}


def test_series(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    write_series(source, range(10))
    settings = {"image": {"size": 32}, "groups": {"near_duplicates": False}}
    first = run(source, root, **settings)
    assert (first["num_records"], first["num_filtered"]) == (10 * NUM_SLICES, 1)
    assert rows(Catalog(str(root)).open("d"))["even/DICOMDIR"]["reason"] == "no_picture"
    found = groups(root)
    of_series = {uri.rpartition("/")[0]: value for uri, value in found.items()}
    assert len({group for group, _ in of_series.values()}) == 10
    assert all(found[uri] == of_series[uri.rpartition("/")[0]] for uri in found), "a series is in one split"
    assert all(group.startswith("series:") and "1.2." not in group for group, _ in of_series.values())
    for path in (path for path in root.rglob("*") if path.is_file()):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert SECRET.encode() not in data, path
    further = dicom(slice_of(1, 9), SeriesInstanceUID="1.2.1", BitsStored=12)
    (source / "odd" / "case-1" / "9.dcm").write_bytes(further)
    grown = run(source, root, **settings)
    assert grown["num_encoded"] == 1
    assert groups(root)["odd/case-1/9.dcm"] == of_series["odd/case-1"], "known files keep their series"
    grouped = run(source, root, **settings | {"groups": {"near_duplicates": False, "pattern": "^(odd|even)"}})
    assert grouped["num_encoded"] == 0
    assert {group for group, _ in groups(root).values()} == {"odd", "even"}, "the source's own groups count"
