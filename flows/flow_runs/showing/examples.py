"""Small pictures of examples as Markdown: unusable inputs, and wrong predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from shardmill.flows.flow_runs.showing.markdown import code, escaped, markdown_table, picture
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.json_files import open_shape, read_json
from shardmill.infra.readable import counted
from shardmill.training.results.report.examples import EXAMPLES_FILE

Found = Mapping[str, Any]


@open_shape
class _Example(TypedDict):
    uri: str
    label: str
    picture: NotRequired[str | None]


@open_shape
class _Hard(_Example):
    predicted: str


@open_shape
class _LabelError(_Example):
    suggested: str
    split: str


class _Examples(TypedDict):
    hardest: NotRequired[dict[str, list[_Hard]]]
    label_errors: NotRequired[list[_LabelError]]


def lost_text(lost: Found) -> str:
    """Return the reasons of inputs that cannot be used, with the first inputs of each and their pictures.

    Args:
        lost: the event ``lost`` (shardmill.infra.progress).
    """
    parts = []
    for reason, count in sorted(lost["reasons"].items(), key=lambda reason: (-reason[1], reason[0])):
        meaning, remedy = lost.get("meanings", {}).get(reason, ("", ""))
        parts.append(f"### {escaped(reason)}: {counted(count, 'input')}")
        if meaning:
            parts.append(f"{escaped(meaning)}. What to do: {escaped(remedy)}.")
        rows = [
            [_picture(one), code(one["uri"]), escaped(one["message"])]
            for one in lost["inputs"]
            if one["reason"] == reason
        ]
        parts.append(markdown_table(["picture", "file", "message"], rows))
    return "\n\n".join(parts)


def read_examples(run_dir: Path) -> Found:
    """Return the examples that the report of a run shows; empty for a run of an earlier release."""
    try:
        found = read_json(run_dir / EXAMPLES_FILE, _Examples, "evaluate the run again")
    except CorruptDataError:  # a page without pictures is no reason to fail a run that has ended well
        return {}
    return cast("Found", found)


def hardest_text(found: Found) -> list[str]:
    """Return the examples that a model got most wrong, and likely label errors, as parts of a page."""
    parts = []
    for split, examples in found.get("hardest", {}).items():
        if examples:
            rows = [
                [_picture(one), escaped(one["label"]), escaped(one["predicted"]), code(one["uri"])]
                for one in examples
            ]
            names = ["picture", "label", "predicted", "file"]
            parts += [f"### Hardest examples of {escaped(split)}", markdown_table(names, rows)]
    if errors := found.get("label_errors"):
        parts += ["### Likely label errors", markdown_table(*_label_errors(errors))]
    return parts


def _label_errors(errors: Sequence[Found]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            _picture(one),
            escaped(one["label"]),
            escaped(one["suggested"]),
            escaped(one["split"]),
            code(one["uri"]),
        ]
        for one in errors
    ]
    return ["picture", "label", "suggested", "split", "file"], rows


def _picture(one: Found) -> str:
    return picture(one["uri"], one["picture"]) if one.get("picture") else ""
