"""What the page of a flow run shows while it runs and afterwards: charts, lines, addresses."""
