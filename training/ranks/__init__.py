"""Ranks and devices: the parent that starts, watches and restarts ranks, and how ranks find each other.

The way from the command to a step:

    train._trained
      run.ranks.train_with_supervised_ranks    the launcher's places, the command of a rank, the limits
        supervision.supervisor.Supervisor.run  attempts, until one ends well or starting again cannot help
          launchers.<name>.RankHosts.start     a rank in each place: RankProcess, or an actor of Ray
          supervision.attempt.Attempt.wait     looks at all ranks (RankState), names the first that fails
    train_rank                                 the child: finds the others (cluster), beats (heartbeat)
      run.session.train                        trains, as without ranks

A rank that Slurm, Kubernetes or torchrun started runs ``train`` itself: ``run.ranks.train_as_outer_rank``
watches one child in the same way, and ends where ``Supervisor`` would start again.
"""
