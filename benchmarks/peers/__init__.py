"""Peers: other people's packages on the same problems, each in an environment and a process of its own.

A peer's module runs with the peers' Python and without `headcount`: it reads arrays from one file, writes arrays to another, and prints its
times, its peak memory and its version. `benchmarks.peers.compare` makes the problems, runs ours beside it and measures the distance.
"""
