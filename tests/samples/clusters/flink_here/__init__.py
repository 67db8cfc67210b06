"""Apache Flink on one machine, with all that Beam needs to run Python pipelines on it.

    python -m tests.samples.clusters.flink_here up --folder DIR --task-managers 2

    address       what listens there
    127.0.0.1     the JobManager (its REST port is Flink's "master"), and Beam's job server
    127.0.0.2     the first TaskManager and its pool of Python workers
    127.0.0.3     the second, and so on

Each TaskManager asks ``localhost:50000`` for its Python workers, as in a Kubernetes pod, where the pool is a
second container beside it. Two TaskManagers cannot share a pool: both ask for a worker named ``1-1``, and the
pool tells workers apart by that name. So on one machine ``localhost`` means another address to each
TaskManager, through a hosts file of its own (the property ``jdk.net.hosts.file`` of Java).

    jars.py           gets the jars: Flink's from PyPI, the job server's from Maven Central (pom.xml)
    configuration.py  files that Flink reads, and the commands of its processes
    cluster.py        starts and supervises the processes

Linux only: other systems have no further loopback addresses, and cannot end a child with its parent.
"""
