"""Settings that take over a dataset as it is: its kind, and images that are copied instead of encoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources import open_source
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kind_modules import kind_module
from shardmill.beam_jobs.sources.recognition.recognising import AUTO, merged, settled
from shardmill.infra.codecs.formats import ImageRejected, sniff
from shardmill.infra.codecs.jpeg.header import read_header
from shardmill.infra.errors import UsageError
from shardmill.infra.progress import log

_IMAGES_LOOKED_AT = 96
_COPIED = ("jpeg", "png", "webp")  # formats that can be stored as they are; the first of equally many
_PNG_COLOR_TYPE_AT, _PNG_GREY = 25, 0

FirstImages = Callable[[SourceFolder, PrepareConfig], Iterator[bytes]]
ImportSettings = Callable[[SourceFolder, PrepareConfig], dict[str, Any]]
Load = Callable[[Mapping[str, Any]], PrepareConfig]


def import_request(source: str, dataset: str, root: str, load: Load) -> JobRequest:
    """Return the request that takes over a dataset of another library.

    Args:
        source: folder, file or pattern, as in ``JobRequest``.
        dataset: name of the dataset to make.
        root: folder of the datasets.
        load: loads the configuration; takes nested values that stand in for defaults.

    Raises:
        UsageError: the source is not recognised, or its kind cannot be taken over.
        ConfigError: a setting is wrong, or the dataset is not as its format says.
    """
    request = JobRequest(source=source, dataset=dataset, root=root, config=load({"source": {"kind": AUTO}}))
    found = settled(request)
    module = kind_module(found.config)
    first = getattr(module, "first_images", None)
    if first is None:
        raise UsageError(
            f"{found.source} is of the kind {found.config.source.kind}, which cannot be taken over as it is",
            "--as-is takes over datasets of TensorFlow Datasets and WebDataset: leave it out for others",
        )
    source_folder = open_source(found)
    images = cast(FirstImages, first)(source_folder, found.config)
    image = {"resize": "none", "passthrough": True, **_stored_form(islice(images, _IMAGES_LOOKED_AT))}
    settings = found.config.source.model_dump(exclude_defaults=True)
    more = getattr(module, "import_settings", None)
    if more is not None:
        settings = merged(cast(ImportSettings, more)(source_folder, found.config), settings)
    config = load({"source": settings, "image": image})
    return found.model_copy(update={"config": config})


def _stored_form(images: Iterable[bytes]) -> dict[str, Any]:
    """Return the encoding and the channels that let most images be copied unchanged.

    Args:
        images: some of the images of a source.
    """
    formats: Counter[str] = Counter()
    num_grey = 0
    for data in images:
        found = sniff(data)
        formats[found if found in _COPIED else "other"] += 1
        num_grey += _is_grey(data, found)
    known = {name: formats[name] for name in _COPIED if formats[name]}
    encoding = max(known, key=lambda name: known[name]) if known else "png"
    is_grey = bool(num_grey) and num_grey == formats.total()
    shown = ", ".join(f"{count:,} {name}" for name, count in formats.most_common()) or "none"
    log(
        f"images are stored as {'grey ' if is_grey else ''}{encoding}; copied where they are that already "
        f"(of the first images: {shown})"
    )
    return {"encoding": encoding, "channels": 1 if is_grey else 3}


def _is_grey(data: bytes, found: str | None) -> bool:
    if found == "jpeg":
        try:
            return read_header(data).color_space == "grey"
        except ImageRejected:
            return False
    return found == "png" and data[_PNG_COLOR_TYPE_AT : _PNG_COLOR_TYPE_AT + 1] == bytes([_PNG_GREY])
