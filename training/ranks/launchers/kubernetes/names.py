"""Names that Kubernetes takes."""

from __future__ import annotations

import hashlib
import re

# A DNS label has at most 63 characters. Pods have the longest names: <JobSet>-<ranks>-0-<rank>-<5 letters>.
_LONGEST_LABEL = 63
_SUFFIX = "-abcde"
_DIGEST_LENGTH = 8


def jobset_name(run: str, replicated_job: str, num_ranks: int) -> str:
    """Return a name for the JobSet of a run. Two runs have different names.

    Args:
        run: the name of the run.
        replicated_job: the name of the job in the JobSet.
        num_ranks: the number of ranks.
    """
    room = _LONGEST_LABEL - len(f"-{replicated_job}-0-{num_ranks - 1}{_SUFFIX}")
    plain = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    if plain == run and plain[0].isalpha() and len(plain) <= room:
        return plain
    digest = hashlib.sha256(run.encode()).hexdigest()[:_DIGEST_LENGTH]
    plain = plain if plain[:1].isalpha() else f"run-{plain}"
    return f"{plain[: room - _DIGEST_LENGTH - 1].rstrip('-')}-{digest}"
