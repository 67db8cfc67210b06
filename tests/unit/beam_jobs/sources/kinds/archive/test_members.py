"""Members of archives as they are listed and read: good, hostile, cut short and damaged."""

from __future__ import annotations

import io
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import FILTER_REASONS, QUARANTINE_REASONS
from shardmill.beam_jobs.schemas import Status, file_refs
from shardmill.beam_jobs.sources import list_inputs, make_readable, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.archives import hostile_tar, make_tar, make_zip, pictures

CONFIG = PrepareConfig.model_validate({"source": {"kind": "archive"}})
FILES = pictures({"cat": 3, "dog": 2})
COMPRESSED = {"a.tar.gz": "w:gz", "a.tgz": "w:gz", "a.tar.bz2": "w:bz2", "a.txz": "w:xz"}


def listed(source: Path, config: PrepareConfig = CONFIG, only: str | None = None) -> pa.Table:
    return list_inputs(SourceFolder(str(source), only=only), config).table


def read_all(source: Path, scratch: Path, table: pa.Table | None = None) -> dict[str, bytes | str]:
    """URI -> content, or the reason why it cannot be read."""
    table = listed(source) if table is None else table
    folder, spool = SourceFolder(str(source), max_bytes=1 << 20), Storage.at(scratch)
    rows = table.filter(pa.compute.equal(table["status"], Status.TO_READ))
    make_readable(folder, CONFIG, rows, spool)
    reader = open_reader(folder, CONFIG, spool)
    found: dict[str, bytes | str] = {}
    for file in file_refs(rows):
        try:
            found[file.uri] = reader.read(file)
        except SourceFault as fault:
            found[file.uri] = fault.reason
    assert {reason for reason in found.values() if isinstance(reason, str)} <= QUARANTINE_REASONS
    return found


def reasons(table: pa.Table) -> dict[str, str]:
    """URI -> reason, or the label if there is none."""
    return {row["uri"]: row["reason"] or row["label"] for row in table.to_pylist()}


def _zst(path: Path) -> None:
    plain = make_tar(path.parent.with_name("plain") / "a.tar", FILES).read_bytes()
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(plain)


FORMS: dict[str, Callable[[Path], object]] = {
    "a.tar": lambda path: make_tar(path, FILES),
    "gnu.tar": lambda path: make_tar(path, FILES, form=tarfile.GNU_FORMAT),
    "a.zip": lambda path: make_zip(path, FILES),
    "stored.zip": lambda path: make_zip(path, FILES, zipfile.ZIP_STORED),
    "bzip2.zip": lambda path: make_zip(path, FILES, zipfile.ZIP_BZIP2),
    "a.tar.zst": _zst,
    **{name: lambda path, mode=mode: make_tar(path, FILES, mode) for name, mode in COMPRESSED.items()},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_members(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    FORMS[name](source / name)
    table = listed(source)
    assert reasons(table) == {f"{name}#{member}": member.partition("/")[0] for member in FILES}
    assert read_all(source, tmp_path / "spool") == {f"{name}#{member}": FILES[member] for member in FILES}
    assert set(table["container"].to_pylist()) == {name}


def test_hostile_members_are_rows_and_harmless(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    hostile_tar(source / "h.tar")
    before = sorted(tmp_path.rglob("*"))
    found = {uri.removeprefix("h.tar#"): reason for uri, reason in reasons(listed(source)).items()}
    (twice,) = [name for name in found if name.startswith("cat/twice.jpg#at=")]
    long = "cat/" + "long" * 80 + ".jpg"
    assert found == {
        "cat/good.jpg": "cat", "../out.jpg": "bad_name", "/abs.jpg": "bad_name",
        "cat/../../up.jpg": "bad_name", "cat/twice.jpg": "cat", twice: "replaced_member",
        "cat/empty.jpg": "cat", "cat/soft.jpg": "archived_link", "cat/hard.jpg": "archived_link",
        "cat/disk.jpg": "special_file", "cat/pipe.jpg": "special_file", long: "cat",
        r"cat/caf\xe9.jpg": "cat", "dog/.hidden.jpg": "ignored", "dog/a.jpg": "dog",
    }  # fmt: skip
    content = read_all(source, tmp_path)
    assert content["h.tar#cat/twice.jpg"] == jpeg(8), "the last one, as unpacking would leave it"
    assert content["h.tar#cat/empty.jpg"] == b""
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


def test_a_hostile_zip(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    path = make_zip(source / "h.zip", {"cat/good.jpg": jpeg(1), "cat/bad.jpg": jpeg(2)}, zipfile.ZIP_STORED)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../up.jpg", b"x")
        archive.writestr("C:\\dir\\a.jpg", b"x")
        archive.writestr("cat/bomb.jpg", bytes(50 << 20))
        archive.writestr("cat/lies.jpg", bytes(5000))
        link = zipfile.ZipInfo("cat/link.jpg")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr(zipfile.ZipInfo("cat/lzma.jpg"), b"x" * 100, zipfile.ZIP_LZMA)
        archive.writestr("cat/secret.jpg", b"x")
    data = bytearray(path.read_bytes())
    data[data.index(jpeg(2)) + 40] ^= 0xFF
    for mark, at in ((b"PK\3\4", 30), (b"PK\1\2", 46)):
        where = data.index(mark, data.index(b"cat/secret.jpg") - at if mark == b"PK\3\4" else 0)
        where = data.rindex(b"cat/secret.jpg", 0, None if mark == b"PK\1\2" else data.index(b"PK\1\2")) - at
        data[where + (6 if mark == b"PK\3\4" else 8)] |= 1
    lies = data.rindex(b"cat/lies.jpg") - 46
    data[lies + 24 : lies + 28] = struct.pack("<L", 100)  # the directory declares less than there is
    path.write_bytes(data)
    found = {uri.removeprefix("h.zip#"): reason for uri, reason in reasons(listed(source)).items()}
    assert {name: reason for name, reason in found.items() if reason != "cat"} == {
        "../up.jpg": "bad_name", "C:\\dir\\a.jpg": "bad_name", "cat/link.jpg": "archived_link",
        "cat/lzma.jpg": "unsupported_member", "cat/secret.jpg": "encrypted",
    }  # fmt: skip
    assert read_all(source, tmp_path) == {
        "h.zip#cat/good.jpg": jpeg(1), "h.zip#cat/bad.jpg": "damaged_member",
        "h.zip#cat/bomb.jpg": "too_large", "h.zip#cat/lies.jpg": "damaged_member",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("names", "system", "found"),
    [
        ([r"cat\1.jpg", r"dog\2.jpg"], 0, ["cat/1.jpg", "dog/2.jpg"]),
        (["cat\\", r"cat\1.jpg", r"dog\in\2.jpg"], 3, ["cat/1.jpg", "dog/in/2.jpg"]),
        (["cat/1.jpg", r"dog\2.jpg"], 10, ["cat/1.jpg", "dog/2.jpg"]),
        (["cat/1.jpg", "dog/a.jpg", r"odd\2.jpg"], 3, ["cat/1.jpg", "dog/a.jpg", r"odd\2.jpg"]),
        ([r"cat\1.jpg", r"..\2.jpg"], 0, ["../2.jpg", "cat/1.jpg"]),
    ],
)
def test_backslashes_between_the_folders_of_a_zip(
    names: list[str], system: int, found: list[str], tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number, name in enumerate(names):
            info = zipfile.ZipInfo("x")
            info.filename, info.create_system = name, system
            archive.writestr(info, b"" if name.endswith("\\") else jpeg(number))
    config = PrepareConfig.model_validate({"source": {"kind": "archive"}})
    folder = SourceFolder(str(tmp_path))
    listing = list_inputs(folder, config)
    assert [uri.partition("#")[2] for uri in listing.table["uri"].to_pylist()] == found
    reader = open_reader(folder, config)
    for file in file_refs(listing.to_read()):
        assert reader.read(file).startswith(b"\xff\xd8")
    reasons = {
        row["uri"]: (row["reason"], row["message"]) for row in listing.table.to_pylist() if row["reason"]
    }
    if r"odd\2.jpg" in found:
        ((reason, message),) = reasons.values()
        assert reason == "no_class"
        assert message.endswith(r"its name has \, where / stands between folders")


def test_a_zip_that_was_written_as_a_stream(tmp_path: Path) -> None:
    """Sizes and checksums stand behind the members, which are found by the directory."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            super().__init__()
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        pipe = Pipe()
        with zipfile.ZipFile(pipe, "w", method) as archive:
            for name, data in FILES.items():
                archive.writestr(name, data)
        (tmp_path / "s.zip").write_bytes(pipe.data)
        assert read_all(tmp_path, tmp_path) == {f"s.zip#{name}": data for name, data in FILES.items()}
        broken = bytearray(pipe.data)
        broken[broken.index(b"PK\7\x08") + 4] ^= 1
        (tmp_path / "s.zip").write_bytes(broken)
        assert "damaged_member" in read_all(tmp_path, tmp_path).values()


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "stored.zip", "a.tar.zst"])
def test_what_lies_before_a_cut_is_kept(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    FORMS[name](source / name)
    data = (source / name).read_bytes()
    for share in (0.0, 0.02, 0.3, 0.45):
        (source / name).write_bytes(data[: int(len(data) * share)])
        write(source, {"other.tar": make_tar(tmp_path / "o.tar", {"cat/x.jpg": b"x"}).read_bytes()})
        found = reasons(listed(source))
        assert found.pop("other.tar#cat/x.jpg") == "cat"
        assert found.pop(name) == "broken_container", share
        content = read_all(source, tmp_path / f"spool-{share}")
        for uri, label in found.items():
            member = uri.partition("#")[2]
            assert member in FILES
            assert label in ("cat", "dog", "damaged_member")
            assert label == "damaged_member" or content[uri] == FILES[member]
        if share == 0.45 and name != "a.tar.zst":
            assert sum(label != "damaged_member" for label in found.values()) >= 1


def test_damage_anywhere_costs_rows_and_never_crashes(tmp_path: Path) -> None:
    generator = random.Random(5)
    source = tmp_path / "source"
    source.mkdir()
    other = make_tar(tmp_path / "o.tar", {"cat/x.jpg": b"x"}).read_bytes()
    for name in ("a.tar", "a.zip", "stored.zip", "a.tar.gz", "a.txz", "gnu.tar"):
        FORMS[name](source / name)
        data = (source / name).read_bytes()
        for turn in range(25):
            broken = bytearray(data)
            for _ in range(generator.choice((1, 3, 20))):
                broken[generator.randrange(len(broken))] = generator.randrange(256)
            if turn % 5 == 0:
                broken = broken[: generator.randrange(len(broken))]
            (source / name).write_bytes(broken)
            (source / "other.tar").write_bytes(other)
            table = listed(source)
            uris = table["uri"].to_pylist()
            assert uris == sorted(set(uris))
            assert all(
                reason in FILTER_REASONS | QUARANTINE_REASONS
                for reason in table["reason"].to_pylist()
                if reason is not None
            )
            read_all(source, tmp_path / f"{name}-{turn}", table)
        (source / name).unlink()


def test_joined_tars_and_large_headers(tmp_path: Path) -> None:
    one = make_tar(tmp_path / "one.tar", {"cat/1.jpg": b"1"}).read_bytes()
    source = tmp_path / "source"
    write(source, {"j.tar": one + one})
    assert reasons(listed(source)) == {"j.tar#cat/1.jpg": "cat", "j.tar": "broken_container"}
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    write(source, {"j.tar": one[:1024] + name.tobuf(tarfile.GNU_FORMAT) + b"x" * 5000})
    table = listed(source)
    assert reasons(table) == {"j.tar#cat/1.jpg": "cat", "j.tar": "broken_container"}
    assert "extended header" in table["message"].to_pylist()[0]


def test_a_compressed_tar_that_unpacks_to_too_much(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make_tar(source / "b.tar.gz", {"cat/1.jpg": b"1", "cat/bomb.jpg": bytes(30 << 20)}, "w:gz")
    config = {"source": {"kind": "archive", "archive": {"unpacked_bytes": 1 << 20}}}
    found = reasons(listed(source, PrepareConfig.model_validate(config)))
    assert found["b.tar.gz#cat/1.jpg"] == "cat"
    assert found["b.tar.gz"] == "broken_container"


def test_files_that_are_other_files_and_sources_without_any(tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar", FILES)
    make_tar(tmp_path / "empty.tar", {})
    make_tar(tmp_path / "a#b.tar", FILES)
    write(tmp_path, {"loose.jpg": b"x", "README.md": b"x"})
    found = reasons(listed(tmp_path))
    assert {uri: reason for uri, reason in found.items() if uri.partition("#")[0] != "a.tar"} == {
        "a#b.tar": "bad_name", "empty.tar": "empty_archive", "loose.jpg": "other_file",
        "README.md": "ignored",
    }  # fmt: skip
    with pytest.raises(NotFoundError, match="holds no archive with a file in it"):
        listed(tmp_path, only="empty.tar")
    with pytest.raises(NotFoundError, match=r"matches 'z\*.tar'"):
        listed(tmp_path, only="z*.tar")
    assert set(reasons(listed(tmp_path, only="?.tar"))) == {f"a.tar#{name}" for name in FILES}
    make_tar(tmp_path / "flat.tar", {"1.jpg": b"1", "2.jpg": b"2"})
    with pytest.raises(UsageError, match="has no class folders"):
        listed(tmp_path, only="flat.tar")
