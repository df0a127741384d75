"""The second thread that runs kernels."""

import pytest

from tilewright.backends.interpreter.launch import _Helper


def test_what_fails_on_the_second_thread_is_raised_on_the_first() -> None:
    helper, done = _Helper(), list[int]()

    def fail() -> None:
        raise ValueError("no core")

    finish = helper.start(fail)
    other = helper.start(lambda: done.append(1))
    with pytest.raises(ValueError, match="no core"):
        finish()
    other()
    assert done == [1]
