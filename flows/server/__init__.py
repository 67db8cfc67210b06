"""The Prefect server and worker of this machine, and the client side of the API."""
