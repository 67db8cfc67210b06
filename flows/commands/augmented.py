"""show --augmented: a picture of what training makes of the examples."""

from __future__ import annotations

import sys
from pathlib import Path

from flows.commands import output
from flows.commands.child import result_of
from flows.commands.jobs import train_settings
from flows.parameters import root_or_default
from infra.wording import counted

# In a process of its own: it reads as training does, and may need TensorFlow.
COMMAND = (sys.executable, "-m", "training.show_augmented")


def write(
    ref: str, root: str | None, out: Path, config: Path | None, overrides: list[str], json_output: bool
) -> None:
    """Write the picture and say so.

    Args:
        ref: ``name@version``.
        root: where the datasets are; None: the default.
        out: the picture's file.
        config, overrides: settings of training.
        json_output: say it as JSON.

    Raises:
        UsageError: a setting, or the file's name, is wrong. StorageError: it cannot be written.
    """
    settings = train_settings(config, overrides)
    command = [*COMMAND, ref, "--root", root_or_default(root), "--out", str(out)]
    result = result_of([*command, "--config-json", settings.model_dump_json()])
    if json_output:
        output.print_json(result)
        return
    examples = counted(result["num_examples"], "training example")
    epochs = counted(result["num_epochs"], "epoch")
    output.say(f"Wrote {out}: {examples} of {ref}, as stored and in {epochs}")
