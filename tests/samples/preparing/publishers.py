"""Two processes that publish versions of one dataset, with different content, at the same moments."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.publishing import rollback
from shardmill.infra.dataset.verify import verify
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.stores.stored_life import prepare

NUM_ROUNDS = 10
_MEET_SECONDS = 240.0


def _publish_all(root: str, writer: int, moment: Any, made: Any) -> None:
    """In each round publish the content of this writer's version; put (writer, version)."""
    catalog = Catalog(root)
    for _ in range(NUM_ROUNDS):
        moment.wait(timeout=_MEET_SECONDS)
        made.put((writer, rollback(catalog, f"d@{writer}").version))


def check_publishers(root: str, folder: Path) -> None:
    """Let two writers publish at the same moments: each gets versions of its own, and none is lost."""
    source = make_photos(folder / "photos", {"a": 6, "b": 4})
    for number in range(3):  # the third, so that neither writer's version is the newest
        write(source, {f"b/new{number}.jpg": jpeg(700 + number)})
        prepare(str(source), root)
    context = multiprocessing.get_context("spawn")
    moment, made = context.Barrier(2), context.Queue()
    writers = [context.Process(target=_publish_all, args=(root, number, moment, made)) for number in (1, 2)]
    for writer in writers:
        writer.start()
    told = [made.get(timeout=_MEET_SECONDS) for _ in range(2 * NUM_ROUNDS)]
    for writer in writers:
        writer.join(timeout=60)
    catalog = Catalog(root)
    assert catalog.versions("d") == list(range(1, 2 * NUM_ROUNDS + 4))
    assert sorted(version for _, version in told) == catalog.versions("d")[3:], "each was told its own"
    for number, version in told:
        published, content = (catalog.open(f"d@{one}").manifest for one in (version, number))
        assert (published.restores, published.parent) == (number, version - 1)
        assert published.shards == content.shards
    assert verify(catalog.open("d")).problems == []
