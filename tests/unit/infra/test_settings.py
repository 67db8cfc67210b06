"""Configuration: files, overrides, given values, and errors that help."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import Settings, load_settings, nested, settings_of, split_overrides
from shardmill.training.config import TrainConfig


class Image(Settings):
    short_side: int = Field(default=256, ge=1)
    quality: int = 90


class Config(Settings):
    image: Image = Image()
    name: str = "default"
    fractions: dict[str, float] = Field(default_factory=dict)
    seed: int | None = None


def load(tmp_path: Path, toml: str = "", overrides: tuple[str, ...] = (), **given: object) -> Config:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    return load_settings(Config, section="prepare", config=file, overrides=overrides, given=given)


def test_later_words_win(tmp_path: Path) -> None:
    toml = (
        "[prepare]\nname = 'file'\nseed = 1\n[prepare.image]\nshort_side = 100\nquality = 50\n[train]\nx = 1"
    )
    config = load(tmp_path, toml, ("image.short_side=200", "prepare.seed=2"), name="given")
    assert config == Config(image=Image(short_side=200, quality=50), name="given", seed=2)


def test_defaults_without_a_file() -> None:
    assert load_settings(Config, section="prepare") == Config()


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("name=plain words", "plain words"),
        ('name="quoted"', "quoted"),
        ("name=a=b", "a=b"),
        ("name='1'", "1"),
        ("name=12:00:00", "12:00:00"),
        ("name=2026-11-23", "2026-11-23"),
    ],
)
def test_values_of_overrides(tmp_path: Path, override: str, expected: str) -> None:
    assert load(tmp_path, overrides=(override,)).name == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("seed", Config(image=Image(short_side=5, quality=50))),
        ("prepare.seed", Config(image=Image(short_side=5, quality=50))),
        ("image.quality", Config(image=Image(short_side=5), seed=7)),
        ("image", Config(seed=7)),
        ("fractions.train", Config(image=Image(short_side=5, quality=50), seed=7)),
    ],
)
def test_an_empty_override_restores_the_default(tmp_path: Path, key: str, expected: Config) -> None:
    toml = "[prepare]\nseed = 7\n[prepare.image]\nshort_side = 5\nquality = 50"
    assert load(tmp_path, toml, (f"{key}=",)) == expected


def test_an_empty_override_of_a_key_that_does_not_exist_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'image\.qualty'"):
        load(tmp_path, overrides=("image.qualty=",))


def test_overrides_of_tables(tmp_path: Path) -> None:
    assert load(tmp_path, overrides=("fractions.train=0.5", "fractions.test=0.5")).fractions == {
        "train": 0.5,
        "test": 0.5,
    }
    assert load(tmp_path, overrides=("image={short_side = 3}",)).image.short_side == 3


@pytest.mark.parametrize(
    ("overrides", "message", "remedy"),
    [
        (("image.short_sid=1",), "unknown key 'image.short_sid'", "did you mean 'image.short_side'"),
        (("short_side=1",), "unknown key 'short_side'", "did you mean 'image.short_side'"),
        (("image.fraction=1",), "unknown key 'image.fraction'", "did you mean 'fractions"),
        (
            ("prepare.short_side=1",),
            "unknown key 'short_side' in [prepare]",
            "did you mean 'prepare.image.short_side'",
        ),
        (("zzz=1",), "unknown key 'zzz'", "known keys: image, name, fractions, seed; search them"),
        (("image.short_side=0",), "image.short_side = 0: input should be greater than", None),
        (("image.short_side=many",), "image.short_side = 'many': input should be a valid integer", None),
        (("image",), "is not key=value", "write --set image=VALUE"),
        (("train.epochs=1",), "not of [train]", None),
    ],
)
def test_errors_of_overrides(
    tmp_path: Path, overrides: tuple[str, ...], message: str, remedy: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, overrides=overrides)
    assert message in caught.value.message
    assert (remedy or "") in (caught.value.remedy or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("toml", "message", "remedy"),
    [
        ("[prepair]\nseed = 1", "unknown key 'prepair'", "did you mean [prepare]?"),
        ("seed = 1", "unknown key 'seed'", "under [prepare] or [train]"),
        ("seed = ", "not valid TOML", ""),
    ],
)
def test_errors_of_files(tmp_path: Path, toml: str, message: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, toml)
    assert message in caught.value.message
    assert remedy in (caught.value.remedy or "")


def test_a_missing_file() -> None:
    with pytest.raises(ConfigError, match="cannot read configuration nowhere"):
        load_settings(Config, section="prepare", config="nowhere.toml")


def test_sections_of_a_command_with_several() -> None:
    found = split_overrides(["prepare.seed=1", "train.epochs=2", "prepare.image.quality=1"])
    assert found == {"prepare": ["prepare.seed=1", "prepare.image.quality=1"], "train": ["train.epochs=2"]}
    with pytest.raises(ConfigError, match="which section"):
        split_overrides(["seed=1"])
    with pytest.raises(ConfigError, match="which section"):
        split_overrides(["prepare=1"])


class Other(Settings):
    other: int = 0
    seed: int = 0


def test_a_key_that_one_section_has_needs_no_section() -> None:
    models = {"prepare": Config, "train": Other}
    assert split_overrides(["image.quality=1", "other = 2", "train.seed=3"], models) == {
        "prepare": ["prepare.image.quality=1"],
        "train": ["train.other = 2", "train.seed=3"],
    }


@pytest.mark.parametrize(
    ("override", "message", "remedy"),
    [
        ("seed=1", "which section", "write --set prepare.seed=1 or --set train.seed=1"),
        ("image.qualty=1", "no setting is called 'image.qualty'", "did you mean 'prepare.image.quality'?"),
        ("othr=1", "no setting is called 'othr'", "did you mean 'train.other'?"),
        ("nothing=1", "no setting is called 'nothing'", "search them: shardmill settings nothing"),
    ],
)
def test_the_remedy_names_the_section_that_has_the_key(override: str, message: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_overrides([override], {"prepare": Config, "train": Other})
    assert message in caught.value.message
    assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"image.quality": 3, "image": {"short_side": 9}}, {"image": {"quality": 3, "short_side": 9}}),
        ({"fractions": {"t.shirt": 0.5}}, {"fractions": {"t.shirt": 0.5}}),
        ({"fractions.t.shirt": 0.5, "fractions": {"hat": 1}}, {"fractions": {"t.shirt": 0.5, "hat": 1}}),
        ({"name": Path("a")}, {"name": "a"}),
        ({"no.such": {"key.of": 1}}, {"no": {"such": {"key": {"of": 1}}}}),
        ({"seed": None, "image": {}}, {"seed": None, "image": {}}),
    ],
)
def test_dotted_names_become_nested_tables(given: dict[str, object], wanted: dict[str, object]) -> None:
    assert nested(given, Config) == wanted


@pytest.mark.parametrize(
    "given",
    [
        {"image.quality": 3, "image": {"quality": 3}},
        {"image": 1, "image.quality": 3},
        {3: 3},
        {"image": {3: 3}},
    ],
)
def test_settings_given_twice_or_without_a_name_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"twice|is no name of a setting"):
        nested(given, Config)


WRONG = ("no such value", -1e300, [[[]]])


@pytest.mark.parametrize(("section", "model"), [("prepare", PrepareConfig), ("train", TrainConfig)])
def test_a_wrong_value_of_any_setting_is_an_error_of_one_line_with_a_remedy(
    section: str, model: type[Settings]
) -> None:
    refused = {}
    for setting in settings_of(model):
        for wrong in WRONG:
            try:
                load_settings(model, section=section, given=nested({setting.key: wrong}, model))
            except ConfigError as error:
                refused[setting, str(wrong)] = error
    for (setting, wrong), error in refused.items():
        case = (setting.key, wrong, error.message)
        assert any(part in error.message for part in setting.key.split(".")[-2:]), case
        assert error.remedy, case
        assert len(error.message) < 400, case
        assert "{'" not in error.message, case
    assert len({setting for setting, _ in refused}) > 0.95 * len(list(settings_of(model)))


@pytest.mark.parametrize(
    ("section", "given", "message", "remedy"),
    [
        (
            "train",
            {"ranks.launcher": "slurm"},
            "ranks.launcher = 'slurm' needs ranks.workers, the number of ranks",
            "give it, over all machines: --workers 4, or a range such as 2..4",
        ),
        (
            "train",
            {"model.freeze": "backbone"},
            "model: freeze = 'backbone' without weights would keep layers random",
            "set model.weights too",
        ),
        (
            "train",
            {"run.framework": "jax"},
            "run.framework = 'jax': input should be 'tensorflow' or 'torch'",
            "give tensorflow or torch; default: tensorflow",
        ),
        (
            "train",
            {"optimizer.pruning.begin_epochs": 3, "optimizer.pruning.end_epochs": 2},
            "optimizer.pruning: end_epochs = 2 is not above begin_epochs = 3",
            "raise the one or lower the other",
        ),
        (
            "prepare",
            {"splits.train": 0.5},
            "splits: the fractions sum to 0.7, not to 1",
            "give all three: --set splits.train=0.8 --set splits.validation=0.1 --set splits.test=0.1",
        ),
        (
            "prepare",
            {"filter.classes": ["a"], "source.labels": "none"},
            "filter.classes keeps the images of some classes, and labels = 'none'",
            "leave it out; source.columns.drop_labels leaves out the rows that have a label",
        ),
    ],
)
def test_values_that_do_not_go_together_are_named_without_their_whole_group(
    section: str, given: dict[str, object], message: str, remedy: str
) -> None:
    model: type[Settings] = {"prepare": PrepareConfig, "train": TrainConfig}[section]
    with pytest.raises(ConfigError) as caught:
        load_settings(model, section=section, given=nested(given, model))
    assert (caught.value.message, caught.value.remedy) == (message, remedy)
