"""Files by the ends of their paths, against a search of all files."""

from __future__ import annotations

import numpy as np

from shardmill.beam_jobs.sources.annotations.naming import PathEnds


def shared(one: str, other: str) -> int:
    pairs = list(zip(one.split("/")[::-1], other.split("/")[::-1], strict=False))
    return next((at for at, (part, same) in enumerate(pairs) if part != same), len(pairs))


def test_files_are_those_that_a_search_of_all_finds() -> None:
    rng = np.random.default_rng(5)
    paths = ["/".join(rng.choice(list("abc"), rng.integers(1, 5))) for _ in range(400)]
    uris = sorted(set(paths[:60]))
    files = PathEnds(uris)
    for path in paths:
        lengths = [shared(path, uri) for uri in uris]
        best = [uri for uri, length in zip(uris, lengths, strict=True) if 0 < length == max(lengths)]
        found = files.most_alike(path)
        assert len(found) == min(2, len(best))
        assert set(found) <= set(best)
        ending = [uri for uri in uris if f"/{uri}".endswith(f"/{path}")]
        assert len(files.ending_in(path)) == min(2, len(ending))
        assert set(files.ending_in(path)) <= set(ending)


def test_paths_of_other_systems() -> None:
    files = PathEnds(["x/a.jpg", "y/a.jpg", "caf\u00e9.jpg"])
    assert files.most_alike(r"C:\data\y\a.jpg") == ["y/a.jpg"]
    assert files.most_alike("/mnt/./cafe\u0301.jpg") == ["caf\u00e9.jpg"]
    assert files.most_alike("none.jpg") == files.most_alike("") == files.ending_in("z/a.jpg") == []
