"""Tables of buffers: what MiniMalloc reads, and one sentence for what is none."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.packing import PackingError
from tilewright.packing.tables import parse_table

EXAMPLE = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"


def test_rows_are_written_with_their_offsets() -> None:
    table = parse_table(EXAMPLE)
    assert [(b.name, b.start, b.end, b.size) for b in table.problem.buffers][:2] == [
        ("b1", 0, 3, 4),
        ("b2", 3, 9, 4),
    ]
    assert table.text(np.array([8, 8, 4, 4, 0])).splitlines()[:2] == [
        "id,lower,upper,size,offset",
        "b1,0,3,4,8",
    ]


def test_columns_come_in_any_order_and_under_all_their_names() -> None:
    """`end` is the last time of use, `upper` the first one behind it."""
    table = parse_table(
        'size,alignment,end,hint,gaps,begin,buffer_id\n8,4,2,-1,,0,"a,b"\n\n16,1,5,0,,3,c\r\n'
    )
    first, second = table.problem.buffers
    assert (first.name, first.start, first.end, first.size, first.alignment) == ("a,b", 0, 3, 8, 4)
    assert (second.start, second.end, second.alignment) == (3, 6, 1)
    assert table.text(np.array([4, 0])).splitlines()[1:] == ['8,4,2,-1,,0,"a,b",4', "16,1,5,0,,3,c,0"]
    assert [b.alignment for b in table.with_alignment(6).problem.buffers] == [12, 6]


def test_a_header_alone_is_an_empty_problem() -> None:
    table = parse_table("\ufeffid,lower,upper,size\n")
    assert table.problem.buffers == () and table.text(np.zeros(0, np.int64)) == "id,lower,upper,size,offset\n"


WRONG = {
    "": "the file is empty",
    "id,lower,upper\n": "there is no column size",
    "lower,upper,size\n": "there is no column id or buffer or buffer_id",
    "id,lower,upper,size,color\n": "unknown column 'color'; known are id, buffer",
    "id,lower,upper,size,start\n": "the columns lower and start mean the same",
    "id,lower,upper,size\na,0,1\n": "line 2 has 3 fields, the header 4",
    "id,lower,upper,size\na,0,1,x\n": "line 2: size is 'x', no whole number",
    "id,lower,upper,size\na,0,1.5,4\n": "line 2: upper is '1.5'",
    "id,lower,upper,size\na,0,1_0,4\n": "line 2: upper is '1_0'",
    "id,lower,upper,size\na,0,1,99999999999999999999\n": "line 2: size is '99999999999999999999'",
    "id,lower,upper,size\na,0,1,9223372036854775807\n": "line 2: the buffers have more bytes",
    "id,lower,upper,size\na,0,1,-4\n": "line 2: buffer a has a negative size, -4",
    "id,lower,upper,size\na,5,4,4\n": "line 2: buffer a ends at 4, before it starts at 5",
    "id,lower,upper,size\na,0,1,4\nb,0,1,4\na,2,3,4\n": "line 4: the id a is that of line 2, too",
    "id,lower,upper,size\n,0,1,4\n": "line 2: a buffer without an id",
    "id,lower,upper,size,alignment\na,0,1,4,0\n": "line 2: buffer a has the alignment 0",
    "id,lower,upper,size,gaps\na,0,9,4,2-3\n": "line 2: a buffer with gaps",
    "id,lower,upper,size,offset\na,0,9,4,8\n": "line 2: a buffer with a fixed offset",
    'id,lower,upper,size\n"a,0,9,4\n': "no CSV",
    'id,lower,upper,size\n"a"b,0,9,4\n': "line 2: no CSV",
}


@pytest.mark.parametrize("space", [" ", "\t", "\x1c", "\x1e", "\x85", "\u2003"])
def test_any_space_around_a_number(space: str) -> None:
    """Also those that int() does not know."""
    row = ",".join(f"{space}{n}{space}" for n in ("a", 1, 2, 64))
    (buffer,) = parse_table(f"id,lower,upper,size\n{row}\n").problem.buffers
    assert (buffer.start, buffer.end, buffer.size) == (1, 2, 64)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_table(text: str) -> None:
    with pytest.raises(PackingError) as error:
        parse_table(text)
    assert WRONG[text] in str(error.value) and "\n" not in str(error.value)
