"""The most probable counts: the convex dual, its L-BFGS search, and the engine."""
