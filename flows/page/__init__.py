"""The platform's own web page: datasets, versions, training runs, what happens now, and reviews.

It changes nothing, except that ``--review`` lets it add decisions.
"""
