"""Flink, Spark, Ray, Slurm, Kubernetes and containers, as tests start or imitate them."""
