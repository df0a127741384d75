"""Time on a model of the machine: exact discrete events for each core, the L2 cache, and the host program.

What is modelled. Each core is a scalar unit that issues in order to its pipes (core.py); equal cores and
steady loops are worked out once (section.py, maxplus.py). The cores of a launch share the bandwidth of HBM
and L2 evenly (pricing.py), and no launch is faster than its bytes over the whole bandwidth (kernel.py). L2
keeps whole tensors between launches (memory.py). The host program's commands run on
streams, with events between them (host.py, timeline.py).

What is not. The host's own computing is counted by its bytes alone. Instruction queues have no depth. An
index that a kernel reads from device memory takes its lowest value. Bank conflicts, and the
order in which a chip hands grid points to free cores, are left out: core c runs points c, c + cores, and so
on.
"""

from .errors import SimulationError
from .host import simulate
from .judge import judge
from .kernel import KernelRun, TimedKernel
from .pricing import HBM, L2_CACHE
from .steps import (
    Copy,
    EventRecord,
    EventWait,
    HostCall,
    Launch,
    Repeat,
    Scalars,
    Simulation,
    Step,
    Transfer,
    Work,
    track,
)
from .timeline import Placed, Rest, lay_out

__all__ = [
    "HBM",
    "L2_CACHE",
    "Copy",
    "HostCall",
    "TimedKernel",
    "KernelRun",
    "Launch",
    "Placed",
    "EventRecord",
    "Repeat",
    "Rest",
    "Scalars",
    "Simulation",
    "SimulationError",
    "Step",
    "Transfer",
    "EventWait",
    "Work",
    "judge",
    "lay_out",
    "simulate",
    "track",
]
