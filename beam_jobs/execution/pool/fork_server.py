"""Prepares the fork server; imported there before all else, and by no other process.

The server ends with the process that uses it, also where that one is killed: a pool process that hangs in C
keeps the server's own pipe open, so the server would not notice. Signals that ask for an end go to the
whole process group; the process that uses the server decides what they mean.
"""

import signal

from shardmill.infra.processes.process import die_at_once_with_parent

signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
die_at_once_with_parent()
