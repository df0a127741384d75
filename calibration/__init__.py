"""Calibration: published kernel times against the simulator's, record by record.

records.py    the file of records, read with care: anything may be missing or odd
expressed.py  what a record becomes; the fields that all kinds of records share
express.py    a record as a program of ours with a pinned schedule, or the reason why not
products.py   matrix products, convolutions, attention
vectors.py    elementwise operations, reductions, copies, movements
functions.py  the JAX functions
kernels.py    the programs that JAX cannot say (reads without a use, fixed addresses), as npu text
split_k.py    products whose partial sums are added in device memory, likewise
compare.py    simulate a record and set its times beside the measured ones
summary.py    medians and percentiles by group; the table and the plot
"""

from .compare import RecordOutcome, TimeRow, compare
from .records import CalibrationError, Record, load_records
from .summary import Summary, markdown, scatter, summaries, summarise, table, to_dict, write_page

__all__ = [
    "CalibrationError",
    "RecordOutcome",
    "Record",
    "TimeRow",
    "Summary",
    "compare",
    "load_records",
    "markdown",
    "scatter",
    "summaries",
    "summarise",
    "table",
    "to_dict",
    "write_page",
]
