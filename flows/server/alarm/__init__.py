"""The alarm: tell people what happened, by webhook, mail or chat, without Prefect's automations.

Prefect holds the events of a run back for up to 15 minutes if the run began soon after it was planned, and
loses them when its server restarts. So the alarm reads how runs ended from Prefect's API, and keeps its
messages in files until they are sent::

    ended runs and events     history  --+
                                         +--> outbox (a file a message) --> sending
    open problems             problems --+       for each destination
"""
