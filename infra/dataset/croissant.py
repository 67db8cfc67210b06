"""Describe a version as MLCommons Croissant 1.0: files with checksums, splits, classes, columns and features.

The description is a pure function of the manifest, and of the licence and the attribution that all records of
the version have. It lies in the folder of the dataset, to which its paths are relative, so a dataset can be
copied or served from anywhere. It does not name the folder of the source. It is written after the version is
published, by the writer that published it. A version is whole without it, and the next one to be published
adds what a killed writer left out.
Specification: https://docs.mlcommons.org/croissant/docs/croissant-spec.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as types

from shardmill.infra.dataset.version import read_parquet
from shardmill.infra.errors import EnvironmentFault, NotFoundError
from shardmill.infra.format.contract import INDEX_SCHEMA, Manifest
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import LABELS, MASK
from shardmill.infra.format.layout import croissant_file
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import uri_of
from shardmill.infra.strict_json import dump_json

# Name of a further feature -> the property of schema.org that it is.
_PROPERTIES: Final[Mapping[str, str]] = {
    "licence": "license",
    "license": "license",
    "attribution": "creditText",
    "creator": "creator",
    "rights": "copyrightNotice",
}
_LICENCES, _ATTRIBUTIONS = ("licence", "license"), ("attribution",)


@dataclass(frozen=True, slots=True)
class Terms:
    """Properties that every record of a version shares.

    Attributes:
        licence: the one that all records have; None if they have several, or one has none.
        attribution: likewise.
    """

    licence: str | None = None
    attribution: str | None = None


def terms_of(storage: Storage, manifest: Manifest) -> Terms:
    """Read the licence and the attribution of a version from its indexes.

    Nothing is read if the version has no such features.

    Raises:
        NotFoundError: an index is missing. pyarrow.ArrowException: it is not readable.
    """
    texts = {each.name for each in manifest.extra_features if each.is_text and each.shape == "scalar"}
    licence, attribution = (
        _only_value(storage, manifest, next((name for name in known if name in texts), None))
        for known in (_LICENCES, _ATTRIBUTIONS)
    )
    return Terms(licence, attribution)


def _only_value(storage: Storage, manifest: Manifest, name: str | None) -> str | None:
    """Return the value that a feature has in every record; None if there is no such value."""
    found: set[str | None] = set()
    if name is None:
        return None
    for shard in manifest.shards:
        with storage.open_input(shard.index_path) as stream:
            column = read_parquet(stream, columns=[name])[name]
        found.update(column.unique().to_pylist())
        if len(found) > 1:
            return None
    return found.pop() or None if found else None


# Terms of Croissant's own vocabulary, then those of others.
_TERMS = (
    "citeAs", "column", "dataBiases", "dataCollection", "equivalentProperty", "extract", "field",
    "fileObject", "fileProperty", "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key",
    "md5", "parentField", "path", "personalSensitiveInformation", "recordSet", "references", "regex",
    "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
_CONTEXT: dict[str, Any] = dict(
    sorted(
        {
            **{term: f"cr:{term}" for term in _TERMS},
            "@language": "en",
            "@vocab": "https://schema.org/",
            "conformsTo": "dct:conformsTo",
            "cr": "http://mlcommons.org/croissant/",
            "data": {"@id": "cr:data", "@type": "@json"},
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
            "dct": "http://purl.org/dc/terms/",
            "examples": {"@id": "cr:examples", "@type": "@json"},
            "rai": "http://mlcommons.org/croissant/RAI/",
            "sc": "https://schema.org/",
        }.items()
    )
)
_CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
_PARQUET, _TFRECORD, _GZIP = "application/x-parquet", "application/x-tfrecord", "application/gzip"
_SHARDS, _INDEXES = "shards", "indexes"
_TEXTS = ("id", "label_name")  # features of the examples that hold text; the image is a picture


def write_croissant(storage: Storage, manifest: Manifest) -> None:
    """Write the description of a published version; a failure is only logged, for the version is whole."""
    path = croissant_file(manifest.version)
    try:
        storage.write_atomic(path, croissant_json(manifest, terms_of(storage, manifest)))
    except (EnvironmentFault, NotFoundError, pa.ArrowException) as error:
        log(f"cannot write {path}: {error}", level="warning")


def describes(storage: Storage, manifest: Manifest) -> bool:
    """Tell whether the description names this version and its files with their checksums.

    A missing one counts too: early releases wrote none. The words may be those of another release.
    """
    try:
        found = json.loads(storage.read_bytes(croissant_file(manifest.version)))
        return _essence(found) == _essence(_described(manifest, Terms()))
    except NotFoundError:
        return True
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def _essence(document: Any) -> dict[str, Any]:
    files = {file["contentUrl"]: file["sha256"] for file in document["distribution"] if "contentUrl" in file}
    return {"name": document["name"], "version": document["version"], "files": files}


def croissant_json(manifest: Manifest, terms: Terms) -> bytes:
    """Return the description as JSON-LD.

    Args:
        manifest: manifest of the version.
        terms: licence and attribution, if all of its records have the same.
    """
    return (dump_json(_described(manifest, terms), indent=1, ensure_ascii=True) + "\n").encode("ascii")


def _described(manifest: Manifest, terms: Terms) -> dict[str, Any]:
    counts = manifest.accounting
    encoding = manifest.image_encoding
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": manifest.dataset,
        "conformsTo": _CONFORMS_TO,
        "description": (
            f"{manifest.dataset}@{manifest.version}: {counts.num_records:,} images ({encoding}) of "
            f"{len(manifest.classes):,} classes, in TFRecord shards with Parquet indexes."
        ),
        "version": f"{manifest.version}.0.0",
        "datePublished": manifest.created_at[:10],
        **({"license": uri_of(terms.licence)} if terms.licence else {}),
        **({"citeAs": uri_of(terms.attribution)} if terms.attribution else {}),
        "distribution": [*_files(manifest), *_file_sets(manifest)],
        "recordSet": [_splits(manifest), _classes(manifest), _records(manifest), _examples(manifest)],
    }


def _files(manifest: Manifest) -> Iterable[dict[str, Any]]:
    for shard in manifest.shards:
        kind = _GZIP if manifest.container == "gzip" else _TFRECORD
        yield _file(shard.path, kind, shard.num_bytes, shard.sha256)
        yield _file(shard.index_path, _PARQUET, shard.index_bytes, shard.index_sha256)
    for part in manifest.inputs:
        yield _file(part.path, _PARQUET, part.num_bytes, part.sha256)


def _file(path: str, kind: str, num_bytes: int, sha256: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": path,
        "name": path.rpartition("/")[2],
        "contentUrl": path,
        "contentSize": f"{num_bytes} B",
        "encodingFormat": kind,
        "sha256": sha256,
    }


def _file_sets(manifest: Manifest) -> Iterable[dict[str, Any]]:
    is_gzip = manifest.container == "gzip"
    about = "TFRecord files of tf.train.Example" + (", each record a gzip member" if is_gzip else "")
    shards = [shard.path for shard in manifest.shards]
    yield _file_set(_SHARDS, about, shards, _GZIP if is_gzip else _TFRECORD)
    indexes = [shard.index_path for shard in manifest.shards]
    yield _file_set(_INDEXES, "The index of each shard: a row for each record", indexes, _PARQUET)


def _file_set(name: str, about: str, paths: list[str], kind: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": name,
        "name": name,
        "description": about,
        "encodingFormat": kind,
        "includes": paths,
    }


def _splits(manifest: Manifest) -> dict[str, Any]:
    rows = [
        {"splits/name": name, "splits/num_examples": split.num_examples}
        for name, split in manifest.splits.items()
    ]
    fields = [
        _field("splits/name", "Name of the split", "sc:Text"),
        _field("splits/num_examples", "Number of its records", "sc:Integer"),
    ]
    return _record_set("splits", "Splits of the records", fields, key="splits/name", data=rows)


def _classes(manifest: Manifest) -> dict[str, Any]:
    rows = [
        {"classes/label": number, "classes/name": uri_of(name)}
        for number, name in enumerate(manifest.classes)
    ]
    fields = [
        _field("classes/label", "Number of the class", "sc:Integer"),
        _field("classes/name", "Name of the class", "sc:Text"),
    ]
    return _record_set("classes", "Classes of the images", fields, key="classes/label", data=rows)


def _records(manifest: Manifest) -> dict[str, Any]:
    """Describe the indexes: one record for each image, with everything that is known of it."""
    columns = [*INDEX_SCHEMA, *(feature.arrow_field() for feature in manifest.extra_features)]
    split = _field("records/split", "Split of the record", "sc:Text") | {
        "references": {"field": {"@id": "splits/name"}},
        "source": {
            "fileSet": {"@id": _INDEXES},
            "extract": {"fileProperty": "filename"},
            # It may also match its own result: mlcroissant applies it twice.
            "transform": {"regex": r"^(.+?)(?:-\d+-of-\d+\.parquet)?$"},
        },
    }
    fields = [split, *(_column(field) for field in columns)]
    return _record_set("records", "A row for each image, from the indexes of the shards", fields)


def _column(field: pa.Field) -> dict[str, Any]:
    kind, repeated = field.type, types.is_list(field.type)
    if repeated:
        kind = kind.value_type
    found = _field(f"records/{field.name}", f"Column {field.name} of the index", _data_type(kind))
    found |= _property(field.name)
    if repeated:
        found["repeated"] = True
    if field.name in ("label", LABELS):
        found["references"] = {"field": {"@id": "classes/label"}}
    return found | {"source": {"fileSet": {"@id": _INDEXES}, "extract": {"column": field.name}}}


def _property(name: str) -> dict[str, Any]:
    """Return the schema.org property of a feature, such as the licence of an image."""
    return {"equivalentProperty": f"sc:{_PROPERTIES[name]}"} if name in _PROPERTIES else {}


def _data_type(kind: pa.DataType) -> str:
    if types.is_boolean(kind):
        return "sc:Boolean"
    if types.is_integer(kind):
        return "sc:Integer"
    if types.is_floating(kind):
        return "sc:Float"
    return "sc:Text"


def _examples(manifest: Manifest) -> dict[str, Any]:
    fields = [_feature(name, about) for name, about in manifest.features.items()]
    fields += [_further(feature) for feature in manifest.extra_features]
    samples = "" if manifest.samples.is_common else f", {manifest.samples}"
    about = (
        "The tf.train.Example of each image in the shards; the image is encoded as "
        f"{manifest.image_encoding}{samples}"
    )
    return _record_set("examples", about, fields)


def _feature(name: str, about: str) -> dict[str, Any]:
    kind = "sc:ImageObject" if name in ("image", MASK) else "sc:Text" if name in _TEXTS else "sc:Integer"
    found = _field(f"examples/{name}", about, kind)
    if name == "label":
        found["references"] = {"field": {"@id": "classes/label"}}
    return found | _from_shards(name)


def _further(feature: Feature) -> dict[str, Any]:
    kind = {"int64": "sc:Integer", "float32": "sc:Float", "bytes": "sc:Text"}[feature.dtype]
    found = _field(f"examples/{feature.name}", str(feature), kind) | _property(feature.name)
    if feature.name == LABELS:
        found["references"] = {"field": {"@id": "classes/label"}}
    return found | ({} if feature.shape == "scalar" else {"repeated": True}) | _from_shards(feature.name)


def _from_shards(name: str) -> dict[str, Any]:
    return {"source": {"fileSet": {"@id": _SHARDS}, "extract": {"column": name}}}


def _field(name: str, about: str, kind: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": name,
        "name": name.rpartition("/")[2],
        "description": about,
        "dataType": kind,
    }


def _record_set(name: str, about: str, fields: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    key = {"key": {"@id": more["key"]}} if "key" in more else {}
    data = {"data": more["data"]} if "data" in more else {}
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": about,
        **key,
        "field": fields,
        **data,
    }
