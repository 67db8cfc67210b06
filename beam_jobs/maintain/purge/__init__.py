"""Purge: remove contents from every version of a dataset for good, for example on request of a person.

    find -> block list and journal -> shards, indexes, tables, manifests -> reports -> files and spools

The contents are named by their URIs; all other URIs that ever had the same bytes go with them. The block list
of purged images holds only SHA-256 digests, of contents and of URIs. The journal is deleted at the
very end. While it exists, the next purge finishes the one that was killed, whatever else it is asked for, and
other commands warn. No prepare takes over blocked contents.
"""

from shardmill.beam_jobs.maintain.purge.finding import ToPurge, find_to_purge
from shardmill.beam_jobs.maintain.purge.working import purge

__all__ = ["ToPurge", "find_to_purge", "purge"]
