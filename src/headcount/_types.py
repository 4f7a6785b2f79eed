"""The types of arrays and labels that every package names in its signatures."""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
"""Whole numbers of individuals."""
Index = NDArray[np.intp]
"""Positions in another array."""
Mask = NDArray[np.bool_]
Texts = NDArray[np.object_]

Variable = Hashable
"""The name of a variable: what the user called it."""
Scope = tuple[Variable, ...]
"""The variables of a table, one per axis."""
