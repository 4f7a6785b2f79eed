"""Benchmarks: one module a claim, results stored with provenance, one page that shows them.

``python -m benchmarks`` measures everything (hours on two cores), ``python -m benchmarks --quick`` small versions of the claims that
are guarded, and fails where they are worse than in the last release (``_guard.py``), ``python -m benchmarks speed peers`` only some
claims, ``python -m benchmarks page`` writes ``docs/benchmarks.md`` from what is stored.
"""
