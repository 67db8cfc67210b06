"""``python -m tests.samples.training.frames ARGUMENTS...``: the frames from the command to a training step.

It runs ``python -m shardmill.training.train ARGUMENTS...`` with a step that raises an error, and prints the
functions of Shardmill in its traceback as JSON. The last one is the step.
"""

from __future__ import annotations

import json
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from shardmill.training import frameworks

ROOT = Path(__file__).parents[3]


class Reached(Exception):
    """A training step has begun."""


def step(*_: Any) -> None:
    """Stand in for a training step."""
    raise Reached


def main() -> None:
    """Print the frames."""
    framework = "torch" if "torch" in sys.argv else "tensorflow"
    frameworks.load(framework, "step").TrainStep.__call__ = step
    try:
        runpy.run_module("shardmill.training.train", run_name="__main__", alter_sys=True)
    except Reached as error:
        frames = traceback.extract_tb(error.__traceback__)
        paths = [(Path(frame.filename), frame.name) for frame in frames if "<frozen" not in frame.filename]
        ours = [f"{path.name}:{name}" for path, name in paths if path.resolve().is_relative_to(ROOT)]
        print(json.dumps(ours[1:]))


if __name__ == "__main__":
    main()
