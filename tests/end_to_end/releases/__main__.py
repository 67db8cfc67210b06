"""Write the datasets of the present release: once, before it is published. Commit the folder as it is."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra import release
from tests.end_to_end.releases import DATASETS, FOLDER, NAMES, SOURCE, TABLE, settings
from tests.samples.images.photos import jpeg, make_photos, write

_TAGS = ("red", "round", "small")


def main() -> None:
    """Draw the images, prepare them twice, and keep source and datasets."""
    folder = FOLDER / release()
    if folder.exists():
        sys.exit(f"{folder} is there already: datasets of a release never change")
    # The paths of source and table stand in the manifests: they are the same on each machine.
    work = Path(tempfile.gettempdir()) / "shardmill-release"
    work.mkdir()
    try:
        source = make_photos(work / SOURCE, {"cat": 8, "dog": 6}, height=16, width=20)
        files = {"cat/same.jpg": jpeg(90, 16, 20), "dog/same.jpg": jpeg(90, 16, 20)}
        write(source, files | {"dog/broken.jpg": jpeg(91, 16, 20)[:-60]})
        paths = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.*"))
        lines = [f"{path},{_TAGS[n % 3]};{_TAGS[n % 2]}" for n, path in enumerate(paths)]
        (work / TABLE).write_text("\n".join(["path,tags", *lines]) + "\n")
        for name in NAMES:
            config = PrepareConfig.model_validate(settings(name, work / TABLE))
            root = str(work / DATASETS)
            prepare_version(JobRequest(source=str(source), dataset=name, root=root, config=config))
            shutil.rmtree(work / DATASETS / name / "spool", ignore_errors=True)
            for lock in (work / DATASETS / name).rglob("*.lock"):
                lock.unlink()
        shutil.copytree(work, folder)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
