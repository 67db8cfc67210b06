"""Runs a task over its work items on a Beam runner, and survives images that crash, hang or eat memory.

This folder is the only place that knows Beam. A *task* (task.py) does numbered pieces of work: blocks to
encode or shards to assemble. The pipeline (pipeline.py) is the same on every runner::

    Create(items) | Reshuffle | ParDo(RunTaskDoFn)

The ``DoFn`` owns a pool of supervised processes (pool/), in the job with the embedded runner and in each
remote worker with the others. Image libraries are C: an error in one ends its whole process. The pool
then reads which file the process was processing, lets the task try that file alone in a sandbox, starts a new
process and submits the item again. A file that is to blame gets a *verdict* in the spool, and its row
says why.

    task.py        the interface of a task
    pipeline.py    the Beam transform
    runners.py     runner names and options; running a pipeline
    flink.py       options and jobs of a Flink cluster
    dataflow.py    options, pipelines and errors of Google's service
    job_server.py  errors of a job server, and cancelling
    errors.py      errors on their way through a runner
    progress.py    progress, counted in storage
    trial.py       tries a file alone, and decides whether it is to blame
    verdicts.py    files that must not be decoded again
    pool/          processes, their supervision, and the sandbox
    workers/       Python workers of a cluster
"""
