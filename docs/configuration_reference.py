"""Writes ``docs/configuration.md`` from the configuration models: ``python docs/configuration_reference.py``.

A test compares the file with what this makes, so that the page is never behind the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from beam_jobs.config import PrepareConfig
from beam_jobs.config.maintain import MaintainConfig
from training.config import TrainConfig
from training.promotion.rules import PromotionRules

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

`run` takes settings of both parts, so there a key begins with `prepare.` or `train.`. A key that does
not exist is an error that names the nearest one. `--set KEY=` without a value restores the default
where a file or a recipe has another value.
"""


PROMOTION = """
## Rules of promotion

When a run takes over an alias from another one: `shardmill promote RUN --set KEY=VALUE`, and in the form of
the deployments ([promote models](promote-models.md)).
"""


MAINTENANCE = """
## `[maintain]`

The maintenance of a dataset: `shardmill schedule --maintain --set KEY=VALUE`, and in the form of the
deployment ([maintenance](schedule-ingestion.md#maintenance)).
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
    values = {name: info for name, info in model.model_fields.items() if _group(info) is None}
    groups = {name: group for name, info in model.model_fields.items() if (group := _group(info)) is not None}
    if values:
        yield "\n| key | type | default | |\n|---|---|---|---|\n"
        for name, info in values.items():
            cells = (f"`{prefix}{name}`", _type(info), _default(info), _opened(info.description or ""))
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    for name, group in groups.items():
        yield f"\n### `{prefix}{name}`\n\n{_sentence(group)}\n"
        yield from _tables(group, f"{prefix}{name}.")


def _group(info: FieldInfo) -> type[BaseModel] | None:
    annotation = info.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _sentence(model: type[BaseModel]) -> str:
    """The first paragraph of a model's docstring, on one line."""
    return " ".join((model.__doc__ or "").strip().split("\n\n")[0].split()).replace("``", "`")


def _opened(text: str) -> str:
    """A description with a capital, unless it begins with a value (``gzip: ...``)."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _type(info: FieldInfo) -> str:
    bounds = [_bound(item) for item in _metadata(info)]
    return ", ".join([_name(info.annotation), *filter(None, bounds)])


def _metadata(info: FieldInfo) -> list[Any]:
    """Bounds stand beside the field or, where it may be empty, inside the union."""
    inner = [item for part in get_args(info.annotation) for item in getattr(part, "__metadata__", ())]
    nested = [more for item in inner for more in getattr(item, "metadata", [item])]
    return [*info.metadata, *nested]


def _bound(item: object) -> str:
    match item:
        case annotated_types.Ge(ge=value):
            return f"≥ {value}"
        case annotated_types.Gt(gt=value):
            return f"> {value}"
        case annotated_types.Le(le=value):
            return f"≤ {value}"
        case annotated_types.Lt(lt=value):
            return f"< {value}"
    return ""


def _name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        return " or ".join("empty" if part is NoneType else _name(part) for part in get_args(annotation))
    if hasattr(annotation, "__metadata__"):
        return _name(annotation.__origin__)
    if origin is dict:
        return "table of {} to {}".format(*(_name(part) for part in get_args(annotation)))
    if origin is not None:
        inside = dict.fromkeys(_name(part) for part in get_args(annotation) if part is not Ellipsis)
        return f"list of {', '.join(inside)}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a table"
    return {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}.get(
        annotation.__name__, annotation.__name__
    )


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list | set | frozenset):
        return ", ".join(f"`{item}`" for item in value) or "empty"
    return f"`{value}`" if value not in ("", {}) else "empty"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
