"""sign: sign the manifest of a published version, or the exports of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardmill.flows.cli import options
from shardmill.flows.cli.datasets.open_catalog import catalog_at, warn_of_unfinished_purge

if TYPE_CHECKING:
    from shardmill.infra.signing import SigningKey

Key = Annotated[
    Path, typer.Option("--key", metavar="FILE", help="The private key: a PEM file, on the curve P-256")
]


def sign(
    key: Key,
    dataset: options.SignedRef = None,
    run: options.SignedRun = None,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Sign a version of a dataset, or the exports of a training run.

    Of a version the manifest is signed, which holds the checksums of all its files. The version is not
    changed. An earlier signature is replaced. Verify first what you sign.

    Examples:
      shardmill sign photos --key team.pem
      shardmill sign photos@2 --key team.pem
      shardmill sign --run photos-v1-3f2a --key team.pem
    """
    from shardmill.flows.cli import output
    from shardmill.infra.signing import SUFFIX, SigningKey

    options.check_one_subject(dataset, run)
    signing_key = SigningKey(key)
    if run is None:
        ref, path = _sign_version(str(dataset), signing_key, root)
        if json_output:
            output.print_json({"dataset": ref, "signature": path})
        else:
            output.say(f"Signed {ref}: {path}")
        return
    name, exports = _sign_exports(run, signing_key, runs)
    if json_output:
        output.print_json({"run": name, "exports": exports})
    else:
        output.say(f"Signed the exports of {name}:", *(f"  {export}{SUFFIX}" for export in exports))


def _sign_version(dataset: str, key: SigningKey, root: str | None) -> tuple[str, str]:
    """Sign a version; its name and the place of the signature."""
    from shardmill.infra.dataset.lock import lock_for_adding
    from shardmill.infra.dataset.signatures import sign_version

    opened = catalog_at(root).open(dataset)
    with lock_for_adding(opened.storage, opened.name):
        path = sign_version(opened, key)
    warn_of_unfinished_purge(opened)
    return opened.ref, f"{opened.storage.uri}/{path}"


def _sign_exports(named: str, key: SigningKey, runs: str | None) -> tuple[str, list[str]]:
    """Sign the exports of a run; its name and theirs."""
    from shardmill.flows.cli.training_runs.folder import runs_location
    from shardmill.training.export.signatures import sign_exports
    from shardmill.training.run.files.stored import opened_run

    with opened_run(named, runs_location(runs)) as run:
        run.finished()
        return run.name, sign_exports(run.path, key)
