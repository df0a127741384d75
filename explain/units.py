"""Quantities in words, in the unit that suits their size. `assets/state.js` has the same rules for the page."""


def duration(microseconds: float) -> str:
    """A time in ns, µs, ms or s: three digits or more."""
    for unit, size in (("ns", 1e-3), ("\u00b5s", 1.0), ("ms", 1e3)):
        number = microseconds / size
        if number < 999.5:
            return (
                f"{number:.0f} {unit}" if unit == "ns" else f"{number:.{2 if number < 9.995 else 1}f} {unit}"
            )
    return f"{microseconds / 1e6:.2f} s"


def data_size(amount: float) -> str:
    """An amount of bytes in B, KB, MB or GB, which are powers of 1000."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if amount >= 0.9995 * one:
            return f"{amount / one:.1f} {unit}"
    return f"{amount:.0f} B"


def percent(share: float) -> str:
    """A share of 1 in whole per cent."""
    return f"{100 * share:.0f}%"
