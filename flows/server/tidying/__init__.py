"""Put the history of Prefect in order after processes were killed."""
