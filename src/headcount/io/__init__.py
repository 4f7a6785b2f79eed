"""Tables, NetCDF, networks and matrices of transport tools, in and out; everything wrong is said at once."""

from headcount.io._errors import TableError
from headcount.io._result import Result, load_result

__all__ = ["Result", "TableError", "load_result"]
