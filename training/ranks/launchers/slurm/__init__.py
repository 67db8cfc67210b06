"""The launcher ``slurm``: a batch script that starts a rank in each task, and starts all of them again.

``script`` writes it, from ``settings``. When the ranks of a try have ended, the script asks ``next_try`` how
to go on.
"""
