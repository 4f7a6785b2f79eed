"""Belief propagation on whole-number tables between exactly counted margins."""
