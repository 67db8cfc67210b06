"""settings: search the settings, with their default, bounds, section, and the page that explains them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from shardmill.beam_jobs.config.known_kinds import described_kinds
from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.flows.cli import options, output
from shardmill.flows.cli.runs.flags import flag_of
from shardmill.flows.flow_runs.jobs import models_of_runs
from shardmill.infra.errors import NotFoundError
from shardmill.infra.readable import shortened
from shardmill.infra.settings import Setting, near_settings, settings_of
from shardmill.training.promotion.rules import PromotionRules

_FEW = 12  # up to so many settings are shown in full
_CUT = 60  # longest description in a list of many
# The page of docs/ about a setting, by the beginning of its key. The longest that fits holds.
_PAGES = {
    "prepare": {
        "source": "sources",
        "source.table": "tables",
        "source.urls": "urls",
        "source.rows": "images-in-rows",
        "source.archive": "archives",
        "source.tfds": "import",
        "source.objects": "objects",
        "source.masks": "masks",
        "image": "what-becomes-of-an-image",
        "splits": "first-dataset",
        "groups": "honest-splits",
        "shards": "versions",
        "runner": "run-on-other-runners",
        "drift": "versions",
        "signing_key": "signing",
        "filter": "recover-from-failures",
        "failure_budget": "recover-from-failures",
    },
    "train": {
        "model": "bring-your-own-model",
        "model.weights": "fine-tuning",
        "model.freeze": "fine-tuning",
        "run": "training",
        "data": "training",
        "data.balance": "training-order",
        "augment": "augmentation",
        "optimizer": "training",
        "reading": "reading-pipelines",
        "ranks": "many-machines",
        "ranks.shares": "multi-gpu",
        "export": "bring-your-own-model",
        "tracking": "evaluate-and-predict",
    },
    "maintain": {"": "schedule-ingestion"},
    "promote": {"": "promote-models"},
}
Word = Annotated[
    str | None,
    typer.Argument(metavar="[WORD]", help="Part of a key or of its description, such as size or batch"),
]


@dataclass(frozen=True, slots=True)
class Entry:
    """A setting, and the section or command that it belongs to.

    Attributes:
        setting: the setting.
        section: "prepare", "train", "maintain" or "promote".
        flag: the option of the commands that stands for it, or None.
    """

    setting: Setting
    section: str
    flag: str | None

    @property
    def page(self) -> str:
        """The page of the documentation that explains it."""
        pages = _PAGES[self.section]
        fitting = [
            start for start in pages if f"{self.setting.key}.".startswith(f"{start}." if start else "")
        ]
        return f"docs/{pages[max(fitting, key=len)]}.md" if fitting else "docs/configuration.md"

    def has(self, word: str, *, name_only: bool = False) -> bool:
        """Whether a word is in its names, or in its description."""
        names = [self.setting.key, *self.setting.also_called]
        names += [] if name_only else [self.setting.description]
        return any(_plain(word) in _plain(name) for name in names)


def settings(word: Word = None, json_output: options.Json = False) -> None:
    """Search the settings: default, bounds, whose they are, their page.

    Examples:
      shardmill settings size
      shardmill settings optimizer
      shardmill settings --json
    """
    everything = _all_entries()
    found = [entry for entry in everything if word is None or entry.has(word)]
    if not found:
        raise NotFoundError(f"no setting has {word!r} in its key or description", _near(str(word)))
    if word is not None:
        found.sort(key=lambda entry: (not entry.has(word, name_only=True), not entry.setting.also_called))
    kinds = described_kinds() if any(entry.setting.key == "source.kind" for entry in found) else []
    if json_output:
        entries = [
            {**asdict(one.setting), "section": one.section, "flag": one.flag, "page": one.page}
            for one in found
        ]
        output.print_json({"settings": entries, "kinds": kinds})
    elif len(found) <= _FEW:
        for entry in found:
            output.say(*_lines(entry), "")
    else:
        rows = [
            [
                entry.setting.key,
                entry.section,
                _text(entry.setting.default),
                shortened(entry.setting.description, _CUT),
            ]
            for entry in found
        ]
        output.print_table("", ["key", "of", "default", ""], rows)


def _all_entries() -> list[Entry]:
    """Every setting of every section."""
    models = models_of_runs() | {"maintain": MaintainConfig, "promote": PromotionRules}
    return [
        Entry(setting, section, flag_of(section, setting.key))
        for section, model in models.items()
        for setting in settings_of(model)
    ]


def _lines(entry: Entry) -> list[str]:
    setting = entry.setting
    commands = {
        "prepare": "of prepare",
        "train": "of train",
        "maintain": "of schedule add --maintain",
        "promote": "of model promote",
    }
    flag = f"; also {entry.flag}" if entry.flag else ""
    return [
        f"{setting.key}  ({commands[entry.section]}{flag})",
        f"  {setting.description}",
        f"  {_text(setting.kind)}; default: {_text(setting.default)}",
        f"  see {entry.page}",
    ]


def _near(word: str) -> str:
    near = [each for model in models_of_runs().values() for each in near_settings(word, model)]
    near.sort(key=lambda each: -each.likeness)
    return f"did you mean {near[0].setting.key!r}?" if near else "without a word it lists them all"


def _text(value: str) -> str:
    """Words of the reference without the marks of code."""
    return value.replace("`", "")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")
