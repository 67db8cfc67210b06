"""The folder of staged shards by itself."""

from __future__ import annotations

from pathlib import Path

from shardmill.training.reading.staging.folder import StagedFolder


def test_a_shard_that_becomes_whole_while_room_is_made_frees_none(tmp_path: Path) -> None:
    folder = StagedFolder(tmp_path, 30)
    first, second, third = (folder.claim(f"set/{name}") for name in ("first", "second", "third"))
    assert first
    assert second
    assert third
    for claim in (first, second):
        assert folder.make_room(claim, 10, lambda name: 0.0, before=0.0)
    in_use = first.commit()

    def next_use(name: str) -> float:
        kept.append(second.commit())
        return 1.0

    kept = [in_use]
    assert not folder.make_room(third, 20, next_use, before=0.0)
    assert len(kept) == 2, "the second was counted as a part of a shard, and was whole when its turn came"
    third.give_up()
    assert folder.used_bytes() == 20
