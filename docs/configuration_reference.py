"""Writes ``docs/configuration.md`` from the configuration models: ``python docs/configuration_reference.py``.

A test compares the file with what this makes, so that the page is never behind the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.infra.settings.keys import Setting, settings_of
from shardmill.infra.settings.model import group_of
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.rules import PromotionRules

PAGE = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Configuration

<!-- Written by docs/configuration_reference.py from beam_jobs/config/ and training/config/. -->

Every setting has a default. Change one in a TOML file, on the command line (which wins), or in the form of a
Prefect deployment.

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

After `shardmill --install-completion` the shell completes keys and names of datasets. `shardmill
settings WORD` searches keys; an unknown key is an error that names the nearest one. `run` takes both
parts: a key that both have begins with `prepare.` or `train.`. `--set KEY=` restores the default.

Each line is a key with its default, if it has one, and in parentheses what the default does not show: the
type, unless it is text, the values or the bounds: `1…10` from 1 to 10, `>0…<1` without the ends.
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
        parts.extend(_lists(model))
    parts.append(PROMOTION)
    parts.extend(_lists(PromotionRules))
    parts.append(MAINTENANCE)
    parts.extend(_lists(MaintainConfig))
    return "".join(parts)


def _lists(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield a list of a model's own values, then one for each of its groups."""
    groups = {
        name: group for name, info in model.model_fields.items() if (group := group_of(info)) is not None
    }
    values = [
        setting for setting in settings_of(model, prefix) if setting.key.count(".") == prefix.count(".")
    ]
    if values:
        yield "\n"
        for setting in values:
            default = "" if setting.default == "empty" else f"={setting.default.replace('`', '')}"
            limits = f" ({text})" if (text := _limits(setting)) else ""
            yield f"- `{setting.key}{default}`{limits}: {setting.description}\n"
    for name, group in groups.items():
        yield f"\n### `{prefix}{name}`\n\n{_sentence(group)}\n"
        yield from _lists(group, f"{prefix}{name}.")


def _limits(setting: Setting) -> str:
    """The type, where the default does not show it, then the values or bounds that the description lacks."""
    kind, *bounds = re.split(r", (?=[≥>≤<] )", setting.kind)
    kind = re.sub("table of text to (Any|text|a table)", "table", kind.removesuffix(" or empty"))
    kind = kind.replace("` or `", "`, `").replace("list of a table", "list of tables")
    kind = re.sub("^text$|list of text", lambda found: "" if found[0] == "text" else "list", kind)
    if re.fullmatch(r"`[^`]+`(, `[^`]+`)*", kind):
        missing = [one for one in re.findall(r"`([^`]+)`", kind) if not _names(setting.description, one)]
        kind = kind if missing else ""
    elif setting.default != "empty" and kind in ("integer", "number", "text", "true or false"):
        kind = ""
    low = "".join(bound.replace("≥ ", "").replace(" ", "") for bound in bounds if bound[0] in "≥>")
    high = "".join(bound.replace("≤ ", "").replace(" ", "") for bound in bounds if bound[0] in "≤<")
    return " ".join(filter(None, (kind, f"{low}…{high}" if bounds else "")))


def _names(text: str, value: str) -> bool:
    """Tell whether a text has a value as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", text, re.IGNORECASE) is not None


def _sentence(model: type[BaseModel]) -> str:
    """The first paragraph of a model's docstring, on one line."""
    return " ".join((model.__doc__ or "").strip().split("\n\n")[0].split()).replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
