"""Settings and the command line load no heavy libraries."""

from __future__ import annotations

import subprocess
import sys


def python(script: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", script]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)


def test_nothing_heavy_loads_for_settings_or_the_command_line() -> None:
    script = (
        "import sys, shardmill.beam_jobs.config, shardmill.beam_jobs.prepare\n"
        "heavy = ('apache_beam', 'tensorflow', 'prefect', 'cv2', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = python(script)
    assert done.stdout.strip() in ("[]", "['numpy']"), "numpy comes with pyarrow"


def test_beam_is_not_loaded_to_find_nothing_to_do() -> None:
    script = "import sys, shardmill.beam_jobs.job; print('apache_beam' in sys.modules)"
    done = python(script)
    assert done.stdout.strip() == "False"


def test_assembling_shards_loads_no_image_libraries() -> None:
    script = (
        "import sys, shardmill.beam_jobs.assemble.shard_task\n"
        "print([name for name in ('cv2', 'imagecodecs', 'PIL') if name in sys.modules])\n"
    )
    assert python(script).stdout.strip() == "[]"
