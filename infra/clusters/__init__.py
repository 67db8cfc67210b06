"""Clusters on one machine, made of the real programs: to try them and to test on them.

services.py   supervised processes: logged, started again when they die, gone with their parent
flink/        Apache Flink with Beam's job server and a pool of Python workers for each TaskManager
"""
