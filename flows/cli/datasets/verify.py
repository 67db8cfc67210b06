"""verify and sign: check a version and signatures; sign versions, and exports of training runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at, runs_location, warn_of_unfinished_purge
from shardmill.infra import progress
from shardmill.infra.errors import UsageError
from shardmill.infra.readable import readable_bytes
from shardmill.infra.signing import SUFFIX, PublicKey, SigningKey

if TYPE_CHECKING:
    from shardmill.infra.dataset.verify import VerifyReport
    from shardmill.infra.dataset.version import DatasetVersion

Key = Annotated[
    Path | None,
    typer.Option(
        "--public-key", metavar="FILE", help="Check the signature too, with this public key of the signer"
    ),
]


def verify(
    dataset: options.SignedRef = None,
    run: options.SignedRun = None,
    public_key: Key = None,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Check every record of a version against its manifest.

    All records are read, and compared with the manifest, the indexes and the inputs.

    The exit status is 3 when anything differs from the manifest. With --public-key the manifest must be
    signed too; with --run, the exports of a training run. The exit status is 5 when a signature is missing,
    or another content or key was signed.

    Examples:
      shardmill verify photos
      shardmill verify photos@2 --json
      shardmill verify photos --public-key team.pub
      shardmill verify --run photos-v1-3f2a --public-key team.pub
    """
    options.check_one_subject(dataset, run)
    key = None if public_key is None else PublicKey(public_key)
    if run is not None:
        if key is None:
            raise UsageError("of a run, signatures are all there is to verify", "give --public-key FILE")
        _verify_exports(run, key, runs, json_output)
        return
    opened = catalog_at(root).open(str(dataset))
    if key is not None:
        from shardmill.infra.dataset.signatures import check_signature

        check_signature(opened, key)
    report = _read_all(opened)
    if json_output:
        _print_json(opened, report, is_signed=key is not None)
    else:
        _show(opened, report, "" if key is None else f", signed with the key of {public_key}")
    warn_of_unfinished_purge(opened)
    if report.problems:
        raise typer.Exit(3)


def _verify_exports(named: str, key: PublicKey, runs: str | None, json_output: bool) -> None:
    from shardmill.training.export.signatures import check_exports
    from shardmill.training.run.files.stored import opened_run

    with opened_run(named, runs_location(runs)) as run:
        names, name = check_exports(run.path, run.finished(), key), run.name
    output.answer(
        {"run": name, "exports": names, "signed": True},
        json_output,
        f"The exports of {name} are as they were signed:",
        *(f"  {export}" for export in names),
    )


def _read_all(opened: DatasetVersion) -> VerifyReport:
    from shardmill.infra.dataset.verify import verify as check
    from shardmill.infra.whole_job import shown_to_people

    with shown_to_people():
        progress.stage("verify", opened.manifest.accounting.num_records, unit="records")
        return check(opened, lambda done, total: progress.progress("verify", done, total, unit="records"))


def _print_json(opened: DatasetVersion, report: VerifyReport, *, is_signed: bool) -> None:
    output.print_json(
        {
            "dataset": opened.name,
            "version": opened.version,
            "num_records": report.num_records,
            "num_bytes": report.num_bytes,
            "problems": report.problems,
            "notes": report.notes,
            **({"signed": True} if is_signed else {}),
        }
    )


def _show(opened: DatasetVersion, report: VerifyReport, signer: str) -> None:
    if not report.problems:
        size = readable_bytes(report.num_bytes)
        records = output.counted(report.num_records, "record")
        output.say(f"{opened.ref} is clean: {records}, {size}{signer}")
    else:
        output.say(
            f"{opened.ref} has {output.counted(len(report.problems), 'problem')}:",
            *(f"  {line}" for line in report.problems),
        )
        output.note("remedy: restore the files from a copy; or delete them and prepare the same source again")
    for line in report.notes:
        output.note(f"note: {line}")


SigningKeyFile = Annotated[
    Path, typer.Option("--key", metavar="FILE", help="The private key: a PEM file, on the curve P-256")
]


def sign(
    key: SigningKeyFile,
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
    options.check_one_subject(dataset, run)
    signing_key = SigningKey(key)
    if run is None:
        ref, path = _sign_version(str(dataset), signing_key, root)
        output.answer({"dataset": ref, "signature": path}, json_output, f"Signed {ref}: {path}")
        return
    name, exports = _sign_exports(run, signing_key, runs)
    output.answer(
        {"run": name, "exports": exports},
        json_output,
        f"Signed the exports of {name}:",
        *(f"  {export}{SUFFIX}" for export in exports),
    )


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
    from shardmill.training.export.signatures import sign_exports
    from shardmill.training.run.files.stored import opened_run

    with opened_run(named, runs_location(runs)) as run:
        run.finished()
        return run.name, sign_exports(run.path, key)
