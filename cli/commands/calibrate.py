"""`tilewright calibrate`: published kernel times against the model's."""

from __future__ import annotations

import argparse

from ...calibration import (
    CalibrationError,
    compare,
    load_records,
    markdown,
    scatter,
    table,
    to_dict,
    write_page,
)
from ..common import CliError, print_json, working
from ..outputs import all_or_none


def calibrate(args: argparse.Namespace) -> int:
    """Prints measured, modelled and error for every record."""
    try:
        records = load_records(args.records)
        outcomes = []
        with working("simulating the measured kernels") as say:
            for record in records:
                say(f"simulating {record.id}", len(outcomes), len(records))
                outcomes.append(compare(record))
        if args.json:
            print_json(to_dict(outcomes))
        else:
            print(table(outcomes), end="")
        with all_or_none():
            if args.page is not None:
                write_page(args.page, markdown(outcomes))
            if args.plot is not None:
                scatter(args.plot, outcomes)
    except CalibrationError as error:
        raise CliError(str(error)) from None
    return 0
