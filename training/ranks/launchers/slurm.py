"""Write the batch script of ``--launcher slurm``. Nothing here runs Slurm.

Each try of the script runs the ranks with ``srun``, a rank a task. Rank 0 is on the first node, whose name is
``MASTER_ADDR``. The port comes from the number of the job and of the try: jobs that share a node differ, and
a try that found its port taken is followed by one with another. It is below the ports from which Linux takes
those of outgoing connections.

The shell of a task notes the exit status of its rank, since ``srun`` only tells the largest of all. A rank
that fails by itself ends the others after a few seconds; these cannot go on, and some cannot know.

Values of settings reach the shell only in quotes, and ``sbatch`` in the quotes of its own directives.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator

from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.locations import below, public_location
from shardmill.training.ranks.launchers.outer import JobFiles, OuterJob
from shardmill.training.ranks.launchers.settings import SlurmSettings
from shardmill.training.ranks.launchers.slurm_next_try import AGAIN, REQUEUE

FILE = "job.sbatch"
# In the folder of the runs, unless ranks.slurm.state names another. Has a folder for each job, with the exit
# statuses of its ranks and its tries.
STATE_FOLDER = ".slurm"

_OWN_OPTIONS = frozenset(
    (
        "job-name",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "requeue",
        "no-requeue",
        "open-mode",
        "signal",
        "array",
    )
)
# Slurm signals up to a minute before the time, so the ranks have the whole of it.
_SIGNAL_MARGIN_SECONDS = 60
_LONGEST_SIGNAL_SECONDS = 65535
_LAST_SECONDS = 10

_TEMPLATE = """\
#!/bin/bash
{directives}
# Trains on Slurm. Submit it with sbatch. Written by shardmill train --launcher slurm.
set -u
{setup}
python={python}
ranks_per_node={ranks_per_node}
command=({command})

state={state}/$SLURM_JOB_ID
mkdir -p "$state" || exit 4

# Runs in each task: the rank, then a note of its exit status. A signal is for the rank alone.
# A rank that failed by itself takes the others with it; 0: done, 75: all save and end now.
task='
trap : {signals}
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
"$@"
status=$?
echo $status >"$SHARDMILL_STATUSES/$SLURM_PROCID"
if [ $status -ne 0 ] && [ $status -ne 75 ]; then
  sleep {last_seconds}
  scancel --signal=KILL "$SLURM_JOB_ID.$SLURM_STEP_ID"
fi
exit $status'

for ((try = 0; ; try++)); do
  export SHARDMILL_STATUSES=$state/statuses-${{SLURM_RESTART_COUNT:-0}}-$try
  rm -rf "$SHARDMILL_STATUSES" && mkdir -p "$SHARDMILL_STATUSES" || exit 4
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  MASTER_PORT=$((10000 + (SLURM_JOB_ID * 97 + ${{SLURM_RESTART_COUNT:-0}} * 13 + try) % 20000))
  export MASTER_ADDR MASTER_PORT LOCAL_WORLD_SIZE=$ranks_per_node
  ranks=$((SLURM_JOB_NUM_NODES * ranks_per_node))
  srun --ntasks="$ranks" --ntasks-per-node="$ranks_per_node" --distribution=block --wait=0 \\
    --kill-on-bad-exit=0{cpus} bash -c "$task" rank "${{command[@]}}"

  "$python" -P -m shardmill.training.ranks.launchers.slurm_next_try \\
    --statuses "$SHARDMILL_STATUSES" --ranks "$ranks" \\
    --state "$state" --checkpoints {checkpoints} --max-restarts {max_restarts}
  next=$?
  case $next in
    {again}) ;;
    {requeue})
      if scontrol requeue "$SLURM_JOB_ID"; then
        sleep 600 # Slurm ends this script
      fi
      echo "error: Slurm does not queue job $SLURM_JOB_ID again; submit this script again to go on" >&2
      exit 75 ;;
    0)
      rm -rf "$state"
      exit 0 ;;
    *) exit $next ;;
  esac
done
"""


def render(job: OuterJob, options: SlurmSettings) -> JobFiles:
    """Return the batch script of a training.

    Raises:
        ConfigError: the ranks do not fill whole nodes, an option is one that the script sets itself, or there
            is no folder for the state of the job.
    """
    python = options.python or sys.executable
    signal = job.preemption_signal.removeprefix("SIG")
    text = _TEMPLATE.format(
        directives="\n".join(f"#SBATCH --{each}" for each in _directives(job, options)),
        setup="".join(f"{line}\n" for line in options.setup),
        python=shlex.quote(python),
        ranks_per_node=options.ranks_per_node,
        command=" ".join(shlex.quote(part) for part in job.command(python)),
        state=shlex.quote(_state_folder(job, options)),
        signals=" ".join(sorted({"TERM", signal})),
        last_seconds=_LAST_SECONDS,
        cpus="" if options.cpus_per_rank is None else f" --cpus-per-task={options.cpus_per_rank}",
        checkpoints=shlex.quote(below(job.runs, f"{job.name}/checkpoints")),
        max_restarts=job.max_restarts,
        again=AGAIN,
        requeue=REQUEUE,
    )
    return JobFiles({FILE: text}, ("sbatch", FILE))


def _state_folder(job: OuterJob, options: SlurmSettings) -> str:
    if options.state is not None:
        return options.state
    if "://" in job.runs:
        raise ConfigError(
            f"the shell of a rank cannot note its exit status in {public_location(job.runs)}",
            "set ranks.slurm.state to a folder on storage that all nodes share; it stays small",
        )
    return below(job.runs, STATE_FOLDER)


def _directives(job: OuterJob, options: SlurmSettings) -> Iterator[str]:
    yield f"job-name={_quoted(job.name)}"
    yield f"nodes={_nodes(job, options.ranks_per_node)}"
    yield f"ntasks-per-node={options.ranks_per_node}"
    if not job.on_cpu:
        kind = "gpu" if options.gpu_type is None else f"gpu:{options.gpu_type}"
        yield f"gres={_quoted(f'{kind}:{options.ranks_per_node}')}"
    given = {
        "partition": options.partition,
        "account": options.account,
        "time": options.time,
        "cpus-per-task": options.cpus_per_rank,
        "mem": options.memory_per_node,
    }
    for name, value in given.items():
        if value is not None:
            yield f"{name}={_quoted(str(value))}"
    signal = job.preemption_signal.removeprefix("SIG")
    seconds = math.ceil(job.stop_timeout_seconds) + _SIGNAL_MARGIN_SECONDS
    yield f"signal={signal}@{min(seconds, _LONGEST_SIGNAL_SECONDS)}"
    yield "requeue"
    yield "open-mode=append"
    if "output" not in options.options:
        yield "output=%x-%j.log"
    for name, value in options.options.items():
        if name in _OWN_OPTIONS or name in given:
            raise ConfigError(
                f"ranks.slurm.options has {name}, which the script sets itself",
                "leave it out; other settings of ranks.slurm say it",
            )
        yield f"{name}={_quoted(value)}"


def _nodes(job: OuterJob, ranks_per_node: int) -> str:
    least, most = -(-job.count.least // ranks_per_node), job.count.most // ranks_per_node
    if job.count.most % ranks_per_node or least > most:
        raise ConfigError(
            f"{job.count.most} ranks do not fill nodes of {ranks_per_node} (ranks.slurm.ranks_per_node)",
            "set ranks.workers to a multiple of ranks.slurm.ranks_per_node",
        )
    return str(most) if least == most else f"{least}-{most}"


def _quoted(value: str) -> str:
    """Quote a value for a line that sbatch reads itself."""
    if not value.isprintable():
        raise ConfigError(f"{value!r} cannot stand in a batch script", "use characters that can be printed")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
