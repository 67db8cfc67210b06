"""The runner of the peers on Beam: in-process, in the mode that SHARDMILL_BENCH_BEAM names.

``in_memory`` is what a pipeline gets that says nothing: one thread. ``multi_threading`` is the fastest with
codecs that release the GIL, and now and then loses a record. ``multi_processing`` starts an interpreter a
worker, and sends all elements between them.
"""

from __future__ import annotations

import os

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

MODE = os.environ.get("SHARDMILL_BENCH_BEAM", "")


def runner() -> FnApiRunner:
    """Beam's in-process runner."""
    return FnApiRunner()


def options(workers: int) -> PipelineOptions:
    """Of ``MODE``, with so many threads or processes where it has several."""
    return PipelineOptions(
        flags=[], direct_num_workers=1 if MODE == "in_memory" else workers, direct_running_mode=MODE
    )
