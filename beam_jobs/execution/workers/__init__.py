"""Python workers of a cluster: a pool beside each TaskManager starts and ends them.

    pool.py      the service that a TaskManager asks for workers (Beam's environment type EXTERNAL)
    __main__.py  the program of a worker

Beam has such a pool too (``worker_pool_main``). It listens on all interfaces without authentication, starts
whatever ``python`` is first on PATH, reads nobody's output until a worker blocks on it, leaves its workers
behind when it is killed, and forgets a worker when another one of the same name is asked for.
"""
