"""How 2:4 sparse numbers are stored: two of each four neighbours, and the positions of these."""

KEPT_OF = 2
"""Numbers for each value that is kept."""

INDEXED = 8
"""Numbers for each byte of positions: two bits for each of four values."""
