"""Unfinished work meets other builds of the codecs."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, features

from shardmill.beam_jobs import job as job_module
from shardmill.beam_jobs.publish import digests as digests_module
from shardmill.infra.codecs import codec_builds
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.format.examples import parse_example
from shardmill.infra.format.layout import decode_manifest, encode_manifest, manifest_file
from shardmill.infra.format.records import iter_records
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.colors import gama, with_chunks
from tests.samples.images.forms import grey_profile, saved
from tests.samples.images.photos import jpeg, make_photos, picture, rotated_jpeg, write
from tests.samples.preparing.runs import folders, problems, run, stopped


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "source", {"a": 14, "b": 8})


def other_builds(monkeypatch: pytest.MonkeyPatch, **builds: str) -> None:
    monkeypatch.setattr(digests_module, "codec_builds", lambda encoding: codec_builds(encoding) | builds)


def stored(root: Path) -> dict[str, bytes]:
    """URI of each record of the newest version -> its stored image."""
    version = Catalog(root).open("d")
    return {
        uri: parse_example(payload).image
        for shard in version.manifest.shards
        for uri, (_, _, payload) in zip(
            version.index(shard)["source_uri"].to_pylist(),
            iter_records(version.storage, shard.path, version.manifest.container),
            strict=True,
        )
    }


def test_unfinished_work_is_not_gone_on_with_under_other_builds(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    with stopped(job_module, "publish"):
        run(source, root)
    (unfinished,) = folders(root, "spool")
    with monkeypatch.context() as patch:
        other_builds(patch, turbojpeg="9.9.9")
        with pytest.raises(EnvironmentFault) as caught:
            run(source, root)
        assert f"made with turbojpeg {codec_builds('jpeg')['turbojpeg']}" in caught.value.message
        assert "this one with turbojpeg 9.9.9" in caught.value.message
        assert f"spool/{unfinished}" in str(caught.value.remedy)
        assert folders(root, "spool") == {unfinished}, "nothing was begun"
        run(source, root, seed=5)  # other work is not concerned
    outcome = run(source, root)
    assert outcome["version"] == 2
    assert problems(root) == []


def test_another_zlib_concerns_only_datasets_of_pngs(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for encoding in ("png", "jpeg"):
        run(source, tmp_path / encoding, image={"encoding": encoding})
    version = features.version
    monkeypatch.setattr(features, "version", lambda name: "9.9.9" if name == "zlib" else version(name))
    jpeg_again = run(source, tmp_path / "jpeg", image={"encoding": "jpeg"})
    png_again = run(source, tmp_path / "png", image={"encoding": "png"})
    assert jpeg_again["version"] == 1, "nothing has changed"
    assert (png_again["version"], png_again["num_encoded"]) == (2, 22), "no image of version 1 is used again"
    assert Catalog(tmp_path / "png").open("d@2").manifest.codecs["zlib"] == "9.9.9"


def test_only_jpegs_that_are_decoded_scaled_are_read_again_after_the_release_that_brought_it(
    source: Path, tmp_path: Path
) -> None:
    root, settings = tmp_path / "root", {"image": {"size": 16}, "shards": {"num_shards": 1}}
    large, turned = jpeg(900, 240, 330), rotated_jpeg(901, 6, 330, 241)
    write(source, {"a/large.jpg": large, "a/later.jpg": large, "b/turned.jpg": turned})
    write(source, {"b/large.png": saved(Image.fromarray(picture(902, 240, 330)), "PNG")})
    run(source, root, **{**settings, "image": {"size": 16, "quality": 60}})
    # An earlier release stored other bytes under these settings.
    place = root / "d" / manifest_file(1)
    manifest = decode_manifest(place.read_bytes())
    manifest.config["image"]["quality"] = 90
    del manifest.codecs["scaled_decoding"]
    place.write_bytes(encode_manifest(manifest))
    before = stored(root)
    outcome = run(source, root, **settings)
    assert (outcome["version"], outcome["num_encoded"]) == (2, 3)
    after = stored(root)
    assert after.keys() == before.keys()
    changed = {uri for uri in after if after[uri] != before[uri]}
    assert changed == {"a/large.jpg", "b/turned.jpg"}
    assert problems(root) == []
    run(source, tmp_path / "fresh", **settings)
    fresh = stored(tmp_path / "fresh")
    assert {uri: fresh[uri] for uri in changed} == {uri: after[uri] for uri in changed}
    assert run(source, root, **settings)["version"] == 2, "nothing has changed"


def test_only_files_that_may_have_other_colours_are_read_again_after_the_release_that_converts_them(
    source: Path, tmp_path: Path
) -> None:
    root, settings = tmp_path / "root", {"image": {"encoding": "png"}, "failure_budget": 0.5}
    plain = saved(Image.fromarray(picture(902, 60, 70)), "PNG")
    grey = saved(Image.fromarray(picture(903, 60, 70)).convert("L"), "JPEG", icc_profile=grey_profile(1.0))
    write(
        source, {"a/plain.png": plain, "a/gamma.png": with_chunks(plain, gAMA=gama(1.0)), "b/grey.jpg": grey}
    )
    write(source, {"b/hdr.png": with_chunks(plain, cICP=bytes((9, 16, 0, 1)))})
    run(source, root, **{**settings, "image": {"encoding": "png", "hdr": "quarantine"}})
    # An earlier release refused HDR, and had no such setting.
    place = root / "d" / manifest_file(1)
    manifest = decode_manifest(place.read_bytes())
    del manifest.config["image"]["hdr"], manifest.codecs["colors"]
    place.write_bytes(encode_manifest(manifest))
    before = stored(root)
    outcome = run(source, root, **settings)
    pngs = len(list(source.rglob("*.png")))
    assert (outcome["version"], outcome["num_encoded"]) == (2, pngs + 1)
    after = stored(root)
    assert {uri for uri in after if after[uri] != before.get(uri)} == {"b/hdr.png"}
    assert problems(root) == []


def test_other_builds_begin_anew_where_the_old_work_was_given_up(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    with stopped(job_module, "publish"):
        run(source, root)
    (unfinished,) = folders(root, "spool")
    other_builds(monkeypatch, turbojpeg="9.9.9")
    Storage.at(root / "d").delete_tree(f"spool/{unfinished}")
    run(source, root)
    assert Catalog(root).open("d@1").manifest.codecs["turbojpeg"] == "9.9.9"
    write(source, {"a/new.jpg": jpeg(700)})
    run(source, root)  # a finished run leaves nothing that could be in the way
    assert Catalog(root).versions("d") == [1, 2]
