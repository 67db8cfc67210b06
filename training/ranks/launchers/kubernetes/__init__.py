"""The launcher ``kubernetes``: a JobSet whose pods are the ranks.

``manifest`` writes it from ``settings``: the pods and, from ``failures``, what Kubernetes makes of their exit
statuses. ``names`` makes names that Kubernetes takes. ``pod`` runs in pods that have several ranks.
"""
