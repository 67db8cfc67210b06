"""The commands that prepare, train and measure: each runs a job in a process of its own."""
