"""sources: list the kinds of sources and their options."""

from __future__ import annotations

from typing import Any

from flows.cli import options


def sources(json_output: options.Json = False) -> None:
    """List the kinds of sources that prepare reads, and their options.

    [bold]Examples[/bold]

      shardmill sources

      shardmill prepare archives --dataset photos --source-kind archive
    """
    from beam_jobs.sources.recognition.description import described_kinds
    from flows.cli import output

    kinds = described_kinds()
    if json_output:
        output.print_json({"kinds": kinds})
        return
    for kind in kinds:
        auto = "" if kind["recognised"] else " (not recognised by auto)"
        output.say(f"{kind['kind']}{auto}: {kind['description']}")
        output.say(*(_line(option) for option in kind["options"]), "")
    output.say(
        "Options are given as --set OPTION=VALUE. Of your own kind (source.kind=my_package.my_kind) they are "
        "source.options; see docs/add-a-source-kind.md."
    )


def _line(option: dict[str, Any]) -> str:
    return f"  {option['option']} = {option['default']!r}: {option['description']}"
