"""Build the site of this release beside those of others: `python docs/versioned_site.py FOLDER`.

``FOLDER`` is what a web server shows. Each minor release has a folder of its own there, which this replaces;
``versions.json`` lists them for the menu of the pages, and ``index.html`` leads to the newest one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import shardmill
from shardmill.infra.strict_json import dump_json

ROOT = Path(__file__).parents[1]
_REDIRECT = """\
<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={0}/index.html">
<a href="{0}/index.html">Shardmill {0}</a>
"""


def publish(folder: Path, release: str = shardmill.__version__) -> Path:
    """Build the site, then replace this release's folder in ``folder`` with it; return that folder.

    Raises:
        CalledProcessError: a page has an error or a warning.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = ".".join(release.split(".")[:2])
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as place:
        made = Path(place, "site")
        build = ["build", "--strict", "--quiet", "--site-dir", str(made)]
        environment = {**os.environ, "SITE_VERSIONS": "mike", "NO_MKDOCS_2_WARNING": "1"}
        subprocess.run([sys.executable, "-m", "mkdocs", *build], cwd=ROOT, env=environment, check=True)
        shutil.rmtree(folder / name, ignore_errors=True)
        made.rename(folder / name)
    listed = folder / "versions.json"
    found = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else []
    versions = {one["version"]: one for one in found} | {
        name: {"version": name, "title": release, "aliases": []}
    }
    ordered = sorted(versions.values(), key=lambda one: _numbers(one["version"]), reverse=True)
    listed.write_text(dump_json(ordered) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(_REDIRECT.format(ordered[0]["version"]), encoding="utf-8")
    return folder / name


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(publish(Path(sys.argv[1])))
