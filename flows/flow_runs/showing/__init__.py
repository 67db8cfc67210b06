"""The content of a flow run's page, while it runs and afterwards: charts, lines, addresses."""
