"""Samplers of the exact posterior: individual paths, and Markov-basis moves on tables."""
