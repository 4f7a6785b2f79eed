"""Compiled kernels of the samplers and of the enumeration, one to a file.

Nothing here is imported before an engine that needs it runs: importing numba takes longer than importing headcount.
Randomness is an explicit array (`_random`); no kernel reads or writes NumPy's or numba's global generators.
"""
