"""Exact answers for small problems: enumeration of all populations, and recursion over count states."""
