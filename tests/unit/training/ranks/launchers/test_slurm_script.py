"""The batch script of Slurm, read by bash with programs that stand for those of Slurm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError
from shardmill.training.ranks.devices import RankCount
from shardmill.training.ranks.launchers.settings import SlurmSettings
from shardmill.training.ranks.launchers.slurm import FILE, render
from tests.samples.ranks.outer_jobs import outer_job

# As bash and sbatch would take them: quotes, expansions, comments, ends of lines and of commands.
NASTY = "a'b\"c $(touch pwned) `touch pwned` ${HOME} \\ #; touch pwned & | <x >pwned\n#SBATCH --nodes=9\n*?!~"
TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1)
LINES = st.text(st.characters(blacklist_categories=("Cs", "C", "Z")) | st.just(" "), min_size=1)


def directives(text: str) -> dict[str, str]:
    """Parse the options as sbatch does, with quotes around values and backslashes before characters."""
    found = {}
    lines = text.splitlines()[1:]
    for line in lines[: next(number for number, line in enumerate(lines) if not line.startswith("#SBATCH "))]:
        name, _, value = line.removeprefix("#SBATCH --").partition("=")
        if value.startswith('"'):
            assert value.endswith('"')
            value = value[1:-1].replace("\\\\", "\0").replace('\\"', '"').replace("\0", "\\")
        found[name] = value
    return found


def run_script(folder: Path, text: str, statuses: dict[int, int]) -> tuple[int, list[str]]:
    """Run a script whose ranks end with ``statuses``; return its exit status and the ranks' command."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    notes = "\n".join(f'echo {status} >"$SHARDMILL_STATUSES/{rank}"' for rank, status in statuses.items())
    # Behind the options of srun: bash -c TASK rank COMMAND...
    srun = (
        f'while [ "$1" != rank ]; do shift; done; shift; printf "%s\\0" "$@" >>"{folder}/command"\n{notes}\n'
    )
    for name, body in (("srun", srun), ("scontrol", '[ "$1" != show ] || echo node1\nexit 3\n')):
        (programs / name).write_text(f"#!/bin/bash\n{body}")
        (programs / name).chmod(0o755)
    (folder / FILE).write_text(text)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[5]),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "HOME": str(folder),
    }
    done = subprocess.run(
        ["bash", str(folder / FILE)],
        env=environment,
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    command = (folder / "command").read_bytes().decode().split("\0")[:-1]
    return done.returncode, command


def test_options_of_the_job_come_from_the_settings() -> None:
    job = outer_job(count=RankCount(8, 16), on_cpu=False, preemption_signal="SIGUSR1")
    options = SlurmSettings(
        ranks_per_node=4,
        partition="gpu",
        account="vision",
        time="2-00:30:00",
        gpu_type="a100",
        cpus_per_rank=8,
        memory_per_node="200G",
        options={"constraint": "nvlink&ib", "mail-type": "FAIL"},
    )
    files = render(job, options)
    assert files.submit == ("sbatch", "job.sbatch")
    assert directives(files.files[FILE]) == {
        "job-name": "photos-v3-0123456789",
        "nodes": "2-4",
        "ntasks-per-node": "4",
        "gres": "gpu:a100:4",
        "partition": "gpu",
        "account": "vision",
        "time": "2-00:30:00",
        "cpus-per-task": "8",
        "mem": "200G",
        "signal": "USR1@180",
        "requeue": "",
        "open-mode": "append",
        "output": "%x-%j.log",
        "constraint": "nvlink&ib",
        "mail-type": "FAIL",
    }


@pytest.mark.parametrize(("count", "ranks_per_node"), [((3, 3), 2), ((3, 5), 4), ((1, 1), 8)])
def test_ranks_that_do_not_fill_nodes_are_refused(count: tuple[int, int], ranks_per_node: int) -> None:
    with pytest.raises(ConfigError, match="do not fill nodes"):
        render(outer_job(count=RankCount(*count)), SlurmSettings(ranks_per_node=ranks_per_node))


@pytest.mark.parametrize("name", ["nodes", "requeue", "time", "signal"])
def test_options_that_the_script_sets_itself_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        render(outer_job(), SlurmSettings(options={name: "1"}))


@pytest.mark.parametrize(
    "values",
    [
        {"partition": "gpu\n#SBATCH --uid=0"},
        {"options": {"constraint": "a\nb"}},
        {"options": {"wrap=x": "b"}},
        {"options": {"wrap\n": "b"}},
        {"time": "1:00; touch x"},
    ],
)
def test_settings_that_could_begin_another_line_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        SlurmSettings.model_validate(values)


@settings(max_examples=200)
@given(partition=LINES, name=LINES, value=LINES)
def test_values_reach_sbatch_as_they_are_and_stay_on_their_lines(
    partition: str, name: str, value: str
) -> None:
    options = SlurmSettings(partition=partition, options={"comment": value})
    text = render(outer_job(name=name), options).files[FILE]
    read = directives(text)
    assert (read["partition"], read["job-name"], read["comment"]) == (partition, name, value)
    assert sum(line.startswith("#SBATCH") for line in text.splitlines()) == len(read)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example(NASTY, NASTY)
@given(dataset=TEXTS, config_json=TEXTS)
def test_the_shell_hands_settings_to_the_ranks_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, dataset: str, config_json: str
) -> None:
    folder = tmp_path_factory.mktemp("job")
    job = outer_job(
        dataset=dataset, config_json=config_json, name="x'$(touch pwned)", runs=str(folder / "ru ns'$(id)")
    )
    text = render(job, SlurmSettings()).files[FILE]
    status, command = run_script(folder, text, {0: 0, 1: 0})
    assert status == 0
    assert command[1:] == list(job.command()[1:])
    assert not list(folder.rglob("pwned"))


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ({0: 0, 1: 0}, 0),
        ({0: 75, 1: 2}, 2),
        ({0: 3, 1: 4}, 3),
        ({0: 75, 1: 75}, 75),  # this scontrol refuses to queue the job again
        ({0: 4}, 75),
    ],
)
def test_the_script_ends_as_its_ranks_say(tmp_path: Path, statuses: dict[int, int], expected: int) -> None:
    text = render(outer_job(runs=str(tmp_path / "runs")), SlurmSettings()).files[FILE]
    assert run_script(tmp_path, text, statuses)[0] == expected


def test_runs_in_an_object_store_need_a_shared_folder_for_the_state(tmp_path: Path) -> None:
    job = outer_job(runs="s3://bucket/runs?region=eu-central-1")
    with pytest.raises(ConfigError, match="exit status in s3://bucket/runs "):
        render(job, SlurmSettings())
    options = SlurmSettings(state=str(tmp_path / "sha red"))
    text = render(job, options).files[FILE]
    assert "--checkpoints 's3://bucket/runs/photos-v3-0123456789/checkpoints?region=eu-central-1'" in text
    elsewhere = outer_job(runs="unknown://bucket/runs")  # it never answers
    status, command = run_script(tmp_path, render(elsewhere, options).files[FILE], {0: 2})
    assert (status, command[command.index("--runs") + 1]) == (2, elsewhere.runs)
    assert list((tmp_path / "sha red" / "7").iterdir())


def test_lines_of_setup_run_before_the_ranks(tmp_path: Path) -> None:
    options = SlurmSettings(setup=["export NOTE='from the setup'", 'echo "$NOTE" >note'])
    run_script(tmp_path, render(outer_job(runs=str(tmp_path)), options).files[FILE], {0: 0})
    assert (tmp_path / "note").read_text() == "from the setup\n"
