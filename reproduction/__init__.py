"""The paper, reproduced: one module per table and figure, and the printed numbers beside ours.

Liu, Sheldon and Dietterich, *Gaussian Approximation of Collective Graphical Models*, ICML 2014.

This folder is a client of the library. It holds the code and the stored results: ``results.parquet`` (every number, one per row),
``manifest.json`` (how they were computed), ``tables/``, ``figures/`` and ``comparison.md``, all drawn from ``results.parquet``.
From a clone, ``python -m reproduction all`` computes what is missing and draws everything; ``make reproduce`` does the same.
"""
