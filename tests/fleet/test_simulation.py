"""Fleets on a virtual clock."""

from __future__ import annotations

import pytest
from tiering import later

from tilewright.fleet import SIMULATED_FAULTS
from tilewright.fleet.policy import Policy
from tilewright.fleet.simulation import World, simulate, summary

SMALL = World(devices=60, offline=0.05)


@pytest.mark.parametrize("fault", SIMULATED_FAULTS)
@pytest.mark.parametrize("after", [0.0, 240.0])
def test_each_fault_is_stopped(fault: str, after: float) -> None:
    world = World(devices=60, offline=0.05, after=after)
    course = simulate(world, Policy(shares=(0.1, 1.0), soak=150.0), fault, 3)
    if fault == "none":
        assert course.state == "done" and course.ran == course.right == 60 and course.stopped is None
        return
    if (fault, after) == ("forged", 240.0):
        assert course.state == "stopped" and course.ran == 0 and course.refused > 0
        return
    assert course.state == "stopped" and course.detection is not None
    if (fault, after) == ("offline", 240.0):  # nobody can reach them: they keep it, and it is said
        assert 0 < course.stranded <= course.faulty and course.rollback is None
        return
    assert course.right == 60 and course.offline_right == course.offline > 0
    if fault == "forged":
        assert course.ran == 0 and course.refused > 0
        return
    assert course.ran == (6 if not after else 60 - course.offline) == course.faulty
    assert course.rollback is not None and course.rollback <= 90


@pytest.mark.parametrize("fault", [name for name in SIMULATED_FAULTS if name != "none"])
@pytest.mark.parametrize("devices", [1, 2, 50])
def test_one_device_of_a_first_stage_is_enough(devices: int, fault: str) -> None:
    for most_errors in (0.01, 1.0):
        course = simulate(World(devices=devices, offline=0.0), Policy(most_errors=most_errors), fault, 0)
        assert course.state == "stopped" and course.right == devices and course.ran <= 1
        assert fault == "forged" or (course.rollback is not None and course.rollback <= 90)


def test_one_seed_is_one_course() -> None:
    first, again, other = (simulate(SMALL, Policy(), "values", seed) for seed in (1, 1, 2))
    assert first == again != other


def test_bad_links_take_longer() -> None:
    """What is measured follows what is assumed: it is no constant."""
    slow = World(devices=60, poll=20.0, loss=0.1)
    courses = [simulate(world, Policy(shares=(1.0,)), "values", 0) for world in (SMALL, slow)]
    assert courses[1].messages < courses[0].messages
    backs = [c.rollback for c in (simulate(w, Policy(shares=(1.0,)), "latency", 0) for w in (SMALL, slow))]
    assert backs[0] is not None and backs[1] is not None and backs[0] < backs[1]
    found = summary(courses)
    assert found["runs"] == 2 and found["rollback"]["worst"] >= found["rollback"]["median"] >= 0


@later()
@pytest.mark.parametrize("after", [0.0, 330.0])
@pytest.mark.parametrize("fault", ["latency", "values", "crash"])
def test_twelve_hundred_stores(fault: str, after: float) -> None:
    course = simulate(World(after=after), Policy(), fault, 0)
    assert course.rollback is not None and course.rollback <= 90 and course.right == 1200
    assert course.faulty == 12 if not after else course.faulty > 1000
