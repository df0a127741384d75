"""Tasks on several processes, or on a cluster: which one does a task changes nothing of its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

Workers = int | str
"""How many processes, or the address of a Dask cluster: `tcp://127.0.0.1:8786`."""

ATTEMPTS = 3
"""How often a task is begun whose process ends before it does."""


def done(work: Callable[[Task], Result], tasks: Sequence[Task], workers: Workers) -> Iterator[tuple[int, Result]]:
    """The number and the result of each task, as they end; with one worker in their order, in this process.

    A task whose process was ended is begun again. Raises what a task raises, RuntimeError where processes end again
    and again, and ImportError where there is no Dask.
    """
    if isinstance(workers, str):
        yield from _on_cluster(work, tasks, workers)
        return
    if workers <= 1 or len(tasks) <= 1:
        for number, task in enumerate(tasks):
            yield number, work(task)
        return
    left = dict(enumerate(tasks))
    for _ in range(ATTEMPTS):
        # not forked: JAX has threads
        with ProcessPoolExecutor(min(workers, len(left)), mp_context=get_context("spawn")) as pool:
            running = {pool.submit(work, task): number for number, task in left.items()}
            try:
                for future in as_completed(running):
                    result = future.result()
                    del left[running[future]]
                    yield running[future], result
            except BrokenProcessPool:
                continue
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if not left:
            return
    raise RuntimeError(f"processes ended {ATTEMPTS} times before their tasks did")


def _on_cluster(work: Callable[[Task], Result], tasks: Sequence[Task], address: str) -> Iterator[tuple[int, Result]]:
    from dask.distributed import Client  # pyright: ignore[reportMissingImports]
    from dask.distributed import as_completed as completed  # pyright: ignore[reportMissingImports]

    with Client(address) as client:
        futures: list[Any] = [client.submit(work, task, pure=False, retries=ATTEMPTS) for task in tasks]
        numbers = {future.key: number for number, future in enumerate(futures)}
        for future in completed(futures):
            yield numbers[future.key], future.result()
