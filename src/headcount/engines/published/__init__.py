"""Published methods kept for comparison: the paper's edge EP, and non-linear belief propagation."""
