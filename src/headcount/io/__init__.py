"""Tables, NetCDF, networks and matrices of transport tools, in and out; everything wrong is said at once."""

from headcount.errors import TableError
from headcount.io._many import Many, folder_name, infer_many
from headcount.io._omx import Matrices, read_omx, write_flows_omx, write_omx
from headcount.io._problem import Case, opened, read_chain, read_network, read_problem, read_sequences
from headcount.io.long import infer_long, read_long
from headcount.io.tables import NOISES, no_counts, read_counts, read_weights
from headcount.io.write import (
    Result,
    export,
    formula_note,
    load_result,
    put_results,
    result_names,
    write_flows,
    write_results,
    write_table,
    write_world,
)
from headcount.posterior._routes import route_lines

__all__ = [
    "NOISES",
    "Case",
    "Many",
    "Matrices",
    "Result",
    "TableError",
    "export",
    "folder_name",
    "formula_note",
    "infer_long",
    "infer_many",
    "load_result",
    "no_counts",
    "opened",
    "put_results",
    "read_chain",
    "read_counts",
    "read_long",
    "read_network",
    "read_omx",
    "read_problem",
    "read_sequences",
    "read_weights",
    "result_names",
    "route_lines",
    "write_flows",
    "write_flows_omx",
    "write_omx",
    "write_results",
    "write_table",
    "write_world",
]
