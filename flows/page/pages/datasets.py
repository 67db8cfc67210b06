"""The pages of datasets and their versions, of the lineage from a source to models, and of aliases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from shardmill.flows.page.files import dataset_report
from shardmill.flows.page.platform import Platform
from shardmill.flows.page.reading.datasets import VersionRow
from shardmill.flows.page.reading.runs import RunRow
from shardmill.flows.page.rendering import list_page, render
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import whole_versions
from shardmill.infra.errors import CorruptDataError, NotFoundError, ShardmillError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.html.page import setting_rows
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases.history import aliases_by_run, list_aliases
from shardmill.training.aliases.record import AliasRecord

_CLASSES = 200
_SHARDS = 200
_VERSIONS = 20  # of a lineage, on one page
_DECISIONS = 20  # of an alias


@dataclass(frozen=True, slots=True)
class _ClassRow:
    """A class of a version: its name, and its number of examples in all and in each split."""

    name: str
    total: int
    by_split: Mapping[str, int]


def list_all(request: Request) -> Response:
    """Return the page of all datasets."""
    platform: Platform = request.app.state.platform
    page = list_page(request, platform.datasets.names())
    rows = [platform.datasets.row(name) for name in page.items]
    return render(
        request, "datasets.html.j2", title="Datasets", rows=rows, page=page, root=platform.datasets.uri
    )


def show(request: Request) -> Response:
    """Return the page of one dataset: its versions."""
    platform: Platform = request.app.state.platform
    name = request.path_params["name"]
    page = list_page(request, platform.datasets.versions(name))
    if not page.items:
        raise NotFoundError(f"no dataset {name!r} under {platform.datasets.uri}", "see the list of all")
    rows = platform.datasets.version_rows(name, page.items)
    return render(request, "dataset.html.j2", title=name, name=name, rows=rows, page=page)


def show_version(request: Request) -> Response:
    """Return the page of one version."""
    platform: Platform = request.app.state.platform
    version = _opened(request)
    manifest = version.manifest
    trained = [row for row in platform.runs.rows() if version.ref in whole_versions(row.dataset)]
    classes = _class_rows(manifest)
    return render(
        request,
        "version.html.j2",
        title=version.ref,
        manifest=manifest,
        outcomes=[
            ("records", "record", manifest.accounting.num_records),
            ("duplicates", "duplicate", manifest.accounting.num_duplicates),
            ("filtered", "filtered", manifest.accounting.num_filtered),
            ("quarantined", "quarantined", manifest.accounting.num_quarantined),
        ],
        quarantine=sorted(manifest.quarantine.items(), key=lambda row: (-row[1], row[0])),
        classes=classes[:_CLASSES],
        num_classes=len(classes),
        largest_class=max((row.total for row in classes), default=0),
        shards=manifest.shards[:_SHARDS],
        stored_bytes=sum(shard.num_bytes for shard in manifest.shards),
        settings=list(setting_rows(manifest.config)),
        features=_features(manifest),
        trained=trained,
        is_newest=version.version == max(platform.datasets.versions(version.name)),
    )


def report(request: Request) -> Response:
    """Return the report of a version."""
    return dataset_report(_opened(request))


def _opened(request: Request) -> DatasetVersion:
    platform: Platform = request.app.state.platform
    return platform.datasets.open(request.path_params["name"], request.path_params["version"])


def _class_rows(manifest: Manifest) -> list[_ClassRow]:
    """Return the classes, the largest first."""
    splits = {split: summary.class_counts for split, summary in manifest.splits.items()}
    names = dict.fromkeys([*manifest.classes, *(name for counts in splits.values() for name in counts)])
    rows = []
    for name in names:
        counts = {split: of_split[name] for split, of_split in splits.items() if of_split.get(name)}
        rows.append(_ClassRow(name, sum(counts.values()), counts))
    return sorted(rows, key=lambda row: (-row.total, row.name))


def _features(manifest: Manifest) -> Sequence[tuple[str, str]]:
    """Return (name, type and meaning) of the features of each record."""
    return [*manifest.features.items(), *((each.name, str(each)) for each in manifest.extra_features)]


@dataclass(frozen=True, slots=True)
class _Descent:
    """A version, and the runs that were trained on it, each with its main figure."""

    version: VersionRow
    runs: Sequence[RunRow]


def lineage(request: Request) -> Response:
    """Return the page: of the dataset that ``?dataset=`` names, or a list of all."""
    platform: Platform = request.app.state.platform
    name = request.query_params.get("dataset")
    if name is None:
        page = list_page(request, platform.datasets.names())
        words = "From source to model, for each dataset:"
        return render(request, "dataset_names.html.j2", title="Lineage", page=page, words=words)
    numbers = list_page(request, platform.datasets.versions(name), _VERSIONS)
    trained, names = _by_version(platform), aliases_by_run(platform.runs.storage, name)
    descents = [
        _Descent(row, trained.get(row.ref, ())) for row in platform.datasets.version_rows(name, numbers.items)
    ]
    return render(
        request,
        "lineage.html.j2",
        title=f"Lineage of {name}",
        name=name,
        descents=descents,
        page=numbers,
        aliases=names,
    )


def _by_version(platform: Platform) -> Mapping[str, Sequence[RunRow]]:
    """Return version -> runs that were trained on it, or on a view of it."""
    found: dict[str, list[RunRow]] = {}
    for row in platform.runs.rows():
        for ref in whole_versions(row.dataset):
            found.setdefault(ref, []).append(row)
    return found


def aliases(request: Request) -> Response:
    """Return the page of all aliases, with the decisions that moved each."""
    platform: Platform = request.app.state.platform
    page = list_page(request, _alias_rows(platform.runs.storage), 20)
    return render(request, "aliases.html.j2", title="Aliases", page=page, most=_DECISIONS)


@dataclass(frozen=True, slots=True)
class _AliasRow:
    """One alias.

    Attributes:
        name: as ``dataset@alias``.
        dataset: name of the dataset.
        holder: the run that has it; None: no run has it.
        records: every decision, the newest first.
        problem: what of its history cannot be read, and why.
    """

    name: str
    dataset: str
    holder: str | None = None
    records: Sequence[AliasRecord] = ()
    problem: str | None = None


def _alias_rows(runs: Storage) -> list[_AliasRow]:
    """Return all aliases; the row of a damaged record says what is wrong with it."""
    rows = []
    try:
        for history in list_aliases(runs):
            found, holder, problem = history.read(), None, None
            try:
                current = found.current()
                holder = None if current is None else current.run
            except CorruptDataError as error:
                problem = str(error)
            if problem is None and found.damaged:
                problem = " ".join(map(str, found.damaged.values()))
            rows.append(_AliasRow(str(found.name), found.name.dataset, holder, found.sound[::-1], problem))
    except ShardmillError as error:  # the folder cannot be listed
        rows.append(_AliasRow("aliases", "", problem=str(error)))
    return rows
