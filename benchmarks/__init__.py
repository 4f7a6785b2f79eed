"""Benchmarks: one module a claim, results stored with provenance, one page that shows them.

``python -m benchmarks`` measures everything (under half an hour on two cores), ``python -m benchmarks --quick`` a small version of it
(under two minutes), ``python -m benchmarks speed peers`` only some claims, ``python -m benchmarks page`` writes ``docs/benchmarks.md``
from what is stored.
"""
