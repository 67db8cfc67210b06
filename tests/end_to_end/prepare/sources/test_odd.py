"""The odd, broken and hostile images beside the repository through the whole of prepare."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from shardmill.beam_jobs.reasons import REASONS
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.format.contract import QUARANTINED
from tests.samples.preparing.command import prepare_command

ODD = Path(__file__).parents[4] / "../shared/data/odd"


@pytest.mark.skipif(not ODD.is_dir(), reason=f"{ODD} is not there: odd images are NOT tested")
@pytest.mark.parametrize(
    "settings",
    [
        (),
        pytest.param(
            ("image.allow_truncated=true", "image.channels=1", "image.encoding=png"), marks=pytest.mark.slow
        ),
    ],
)
def test_every_odd_image_is_stored_or_told_why_not(settings: tuple[str, ...], tmp_path: Path) -> None:
    root = tmp_path / "root"
    argv = prepare_command(ODD, root, dataset="odd")
    argv += ["--json", "--failure-budget", "1", *(word for given in settings for word in ("--set", given))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    version = Catalog(str(root)).open("odd")
    inputs = version.inputs().to_pylist()
    files = [path for path in ODD.rglob("*") if path.is_file()]
    assert json.loads(done.stdout.splitlines()[-1])["num_inputs"] == len(inputs) == len(files)
    assert version.manifest.accounting.num_records > 500
    for row in inputs:
        if row["outcome"] == QUARANTINED:
            assert row["reason"] in REASONS, row
            # No crash, no time-out, and nothing that only a library's own words describe.
            assert row["reason"] not in ("unprocessable", "decoder_crashed", "decoder_hung"), row
            assert len(row["message"]) > 10, row
    assert not verify(version).problems
