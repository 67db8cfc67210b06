"""``python -m beam_jobs.guard.alone``: decode one file, alone in a process that may die of it.

Its last word is a result event; a process that ends without one was ended by the file.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence

from beam_jobs.guard.journal import adopt_journal, open_slot
from beam_jobs.guard.memory import is_out_of_memory, limit_memory
from beam_jobs.guard.trial import TrialRequest
from beam_jobs.images import convert
from beam_jobs.sources.folder import SourceFault, SourceFolder
from infra.process import die_at_once_with_parent, own_peak_rss_bytes, run_main
from infra.progress import emit, result


def main(argv: Sequence[str] | None = None) -> int:
    """Decode the file that ``--request`` names."""
    parser = argparse.ArgumentParser(prog="python -m beam_jobs.guard.alone", description=__doc__)
    parser.add_argument("--request", required=True, help="a TrialRequest as JSON")
    request = TrialRequest.model_validate_json(parser.parse_args(argv).request)
    die_at_once_with_parent()
    adopt_journal()
    source = SourceFolder(request.source)
    try:
        data = source.read(request.uri, request.size_bytes, request.mtime_ns)
    except SourceFault:
        result({"out_of_memory": False, "memory_bytes": 0})  # the job will find the same, and make its row
        return 0
    emit({"event": "read", "sha256": hashlib.sha256(data).hexdigest()})
    before_bytes = own_peak_rss_bytes()
    limit_memory(request.memory_bytes)
    out_of_memory = False
    with open_slot(source.uri) as slot:
        slot.begin(request.uri, request.size_bytes, request.mtime_ns)
        try:
            convert(data, request.image, request.filter)
        except Exception as error:  # noqa: BLE001  (a refusal of the file: in the job it becomes a row)
            out_of_memory = is_out_of_memory(error)
    result({"out_of_memory": out_of_memory, "memory_bytes": own_peak_rss_bytes() - before_bytes})
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
