"""Prefect's server in several processes: API servers and one process of services, on PostgreSQL and Redis."""
