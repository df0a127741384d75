"""One source as several model files, for chips from the data centre to the device (docs/tiers.md).

spec.py      what a TOML file says of tiers
building.py  a program, a file and a line of the table for each tier
forms.py     arguments that are weights, and all others
checking.py  whether a tier computes what it should, as a program and as the file that was written
"""

from .building import Pruning, Tier, Tiers, build
from .spec import TierSpec, read_spec

__all__ = ["Pruning", "Tier", "TierSpec", "Tiers", "build", "read_spec"]
