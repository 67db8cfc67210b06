"""Launchers start the ranks of a training on machines (``--launcher``). No TensorFlow.

Whoever starts the ranks, each of them trains in the same way: it finds the others by ``TF_CONFIG`` or by
``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, takes its part of each step of the one exact
order, and goes on from the last checkpoint of the run. There are two kinds of launchers.

**Supervising launchers** (``local``, ``ray``): our parent runs for the whole training, restarts all ranks
when one fails, and grows again (``shardmill.training.ranks.supervision``). Such a launcher is a module with

    open_hosts(count: RankCount, devices: str, options) -> context manager of RankHosts

where ``RankHosts`` (``shardmill.training.ranks.supervision.hosts``) chooses places for the ranks, as many as
are there between least and most, starts a process in each, and tells the parent of their beats, events, lines
and ends. No process that it started may outlive the context, nor the parent if it is killed.

**Rendering launchers** (``slurm``, ``kubernetes``): an outer system starts the ranks and restarts them. Such
a launcher is a module with

    render(job: OuterJob, options) -> JobFiles

(``shardmill.training.ranks.launchers.outer``), a pure function: it writes nothing, and contacts nobody. Its
job must

* run ``job.command`` in as many processes as there are ranks, each with the variables named above. A rank is
  a small parent of the process that trains (``shardmill.training.run.files.outer_rank``), so it ends by
  itself: if the process dies or takes no step in time, if another rank is lost, and if the ranks do not find
  each other within ``ranks.start_timeout_seconds``;
* tell by the exit statuses of the ranks how to go on (``shardmill.training.ranks.launchers.outer``): end with
success,
  start all ranks again, or end with failure. It starts all ranks again, never a single one;
* pass SIGTERM, or ``run.preemption_signal``, on to the ranks and wait ``job.stop_timeout_seconds`` before it
  kills them.

``options`` is the table of settings of the launcher, ``ranks.<name>``, if it has one. To add a launcher,
write the module, and name it in ``shardmill.training.ranks.launchers.registry``.
"""
