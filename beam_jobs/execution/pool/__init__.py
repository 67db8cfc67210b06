"""Processes that do the items of a task, and a sandbox for a single file.

    supervision.py  the pool: a thread for each process gives it items, watches it, and replaces it
    notes.py        which file a process is processing and how many are done, readable when it is dead
    limits.py       limits of time and memory: set from inside, watched from outside
    shares.py       one budget of memory for the large images of all processes of a machine
    sandbox.py      a disposable process for one call on one file's bytes
    starting.py     processes: forked from a server that has loaded the libraries; they do the items
    fork_server.py  imported by that server only

``concurrent.futures`` does not fit: a worker that dies breaks its whole pool. ``pebble`` (5.2) replaces
dead workers, but a worker that ends with status 0 (a library that calls ``exit``) is never reported, so its
work is waited for without end; and all workers share one channel under one lock, which a process that is
killed may hold.
"""

from shardmill.beam_jobs.execution.pool.supervision import Pool, files_in_progress

__all__ = ["Pool", "files_in_progress"]
