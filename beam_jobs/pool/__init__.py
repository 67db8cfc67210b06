"""A pool of processes for the embedded runner: no image waits for the interpreter to be done with another.

Image libraries release the interpreter's lock, but what lies between their calls holds it, on two cores for a
sixth of the time. So the job forks itself before it loads Beam, once for each worker. The copies share the
memory of all that was loaded until then. Beam runs the pipeline on one thread: a ``DoFn`` lends its numbers
to the processes, and waits for all of a bundle at its end::

    forking.py     the job's side: forks, lends, and dies as a process of it died
    serving.py     the process's side: does the work that it is lent, until the job ends

Other runners have processes of their own, and on systems other than Linux a fork of a process that has loaded
libraries is not safe: there the work is done where Beam calls for it. What comes out is the same.
"""

from beam_jobs.pool.forking import has_pool, lend, pool_cpu_seconds, pool_processes

__all__ = ["has_pool", "lend", "pool_cpu_seconds", "pool_processes"]
