"""Writes ``docs/configuration.md`` from the configuration models: ``python docs/configuration_reference.py``.

A test compares the file with what this makes, so that the page is never behind the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.infra.settings.keys import group_of, settings_of
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.rules import PromotionRules

PAGE = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Configuration

<!-- Written by docs/configuration_reference.py from beam_jobs/config/ and training/config/. -->

Every setting has a default. Change one in a TOML file, on the command line, or in the form of a Prefect
deployment; the command line wins over the file.

```toml
# digits.toml
[prepare]
image.size = 128
failure_budget = 0.02

[train]
run.epochs = 30
data.balance = "uniform"
```

```
shardmill prepare photos --dataset photos --config digits.toml --set image.quality=95
shardmill train photos --config digits.toml --set optimizer.learning_rate=0.001
shardmill run photos --dataset photos --set prepare.image.size=160 --set train.run.epochs=5
```

After `shardmill --install-completion`, the shell completes keys behind `--set`, and names of datasets.

`run` takes settings of both parts: there a key that both have begins with `prepare.` or `train.`. A key that
does not exist is an error that names the nearest one; `shardmill settings WORD` searches them. `--set KEY=`
without a value restores the default where a file or a recipe has another value.
"""


PROMOTION = """
## Rules of promotion

When a run takes over an alias from another one: `shardmill model promote RUN --set KEY=VALUE`, and in the
form of the deployments ([promote models](promote-models.md)).
"""


MAINTENANCE = """
## `[maintain]`

The maintenance of a dataset: `shardmill schedule add --dataset NAME --maintain --set KEY=VALUE`, and in the
form of the deployment ([maintenance](schedule-ingestion.md#maintenance)).
"""


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for section, model in (("prepare", PrepareConfig), ("train", TrainConfig)):
        parts.append(f"\n## `[{section}]`\n")
        parts.extend(_tables(model))
    parts.append(PROMOTION)
    parts.extend(_tables(PromotionRules))
    parts.append(MAINTENANCE)
    parts.extend(_tables(MaintainConfig))
    return "".join(parts)


def _tables(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """A table of a model's own values, then one for each of its groups."""
    groups = {
        name: group for name, info in model.model_fields.items() if (group := group_of(info)) is not None
    }
    values = [
        setting for setting in settings_of(model, prefix) if setting.key.count(".") == prefix.count(".")
    ]
    if values:
        yield "\n| key | type | default | |\n|---|---|---|---|\n"
        for setting in values:
            cells = (f"`{setting.key}`", setting.kind, setting.default, setting.description)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    for name, group in groups.items():
        yield f"\n### `{prefix}{name}`\n\n{_sentence(group)}\n"
        yield from _tables(group, f"{prefix}{name}.")


def _sentence(model: type[BaseModel]) -> str:
    """The first paragraph of a model's docstring, on one line."""
    return " ".join((model.__doc__ or "").strip().split("\n\n")[0].split()).replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
