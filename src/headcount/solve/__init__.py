"""Numerical methods that several packages share, each once: L-BFGS, tables with given margins, the law of a whole number."""
