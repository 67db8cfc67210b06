"""Purge: contents leave every version of a dataset for good, for requests of deletion.

    find -> block list and journal -> shards, indexes, tables, manifests -> reports -> files and spools

What is to go is named by its URIs; with each content go all other URIs that ever had the same bytes. The list
of what must not come back holds SHA-256 only, of contents and of URIs. Until the journal is gone at the very
end, a purge that was killed is finished by the next one, whatever that one is asked for, and other commands
warn of it; and no prepare takes over what is blocked.
"""

from beam_jobs.purge.finding import ToPurge, find_to_purge
from beam_jobs.purge.working import purge

__all__ = ["ToPurge", "find_to_purge", "purge"]
