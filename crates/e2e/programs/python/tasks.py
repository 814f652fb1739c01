"""Coroutines that know how often they run, and how they end.

Prints a line for each async function: coroutines, tasks, runs, returned, raised, waiting; and a line
with the address of one coroutine.
"""

import asyncio
import os
import sys
import threading

KNOWN = {}
LOCK = threading.Lock()
KEPT = []


def made(coroutine, runs, how, task=False):
    """Notes what will become of a coroutine, and returns it."""
    with LOCK:
        known = KNOWN.setdefault(coroutine.__name__, dict(all=0, tasks=0, runs=0, returned=0, raised=0, waiting=0))
        known["all"] += 1
        known["tasks"] += task
        known["runs"] += runs
        known[how] += 1
    return coroutine


class Turn:
    """Waits until the event loop has had its turn, once."""

    def __await__(self):
        yield


async def leaf(turns):
    for _ in range(turns):
        await Turn()
    return turns


async def parent(turns):
    total = await made(leaf(turns), turns + 1, "returned")
    return total + await made(leaf(turns), turns + 1, "returned")


async def failing(turns):
    for _ in range(turns):
        await Turn()
    raise KeyError(turns)


async def catching(turns):
    try:
        await made(failing(turns), turns + 1, "raised")
    except KeyError:
        return await made(leaf(1), 2, "returned")


async def endless():
    while True:
        await Turn()


async def forever():
    await asyncio.get_running_loop().create_future()


async def unstarted():
    await Turn()


async def sleeper():
    await asyncio.sleep(0.05)


async def numbers(count):
    for number in range(count):
        await Turn()
        yield number


async def consumer(count):
    total = 0
    async for number in numbers(count):
        total += number
        await made(leaf(1), 2, "returned")
    return total


async def cancelled(coroutine, turns):
    task = asyncio.ensure_future(coroutine)
    for _ in range(turns):
        await Turn()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass


async def main():
    tasks = [made(parent(turns), 2 * turns + 1, "returned", True) for turns in range(20)]
    tasks += [made(catching(turns), turns + 2, "returned", True) for turns in range(5)]
    tasks += [made(failing(2), 3, "raised", True)]
    tasks += [made(sleeper(), 2, "returned", True)]
    tasks += [made(consumer(4), 4 * 2 + 1, "returned", True)]
    await asyncio.gather(*tasks, return_exceptions=True)
    # It waits once for each turn, and is cancelled with the last, and waits for its task once.
    await cancelled(made(forever(), 2, "raised", True), 3)
    # Cancelled before its first run.
    await cancelled(made(unstarted(), 1, "raised", True), 0)
    by_hand = made(endless(), 4, "raised", False)
    for _ in range(3):
        by_hand.send(None)
    by_hand.close()
    kept = made(endless(), 2, "waiting", False)
    KEPT.append(kept)
    kept.send(None)
    kept.send(None)
    KEPT.append(id(kept))


def in_thread():
    loop = asyncio.new_event_loop()
    coroutine = made(parent(50), 101, "returned", True)
    loop.run_until_complete(coroutine)
    loop.close()


# The thread's loop runs while the main one does.
thread = threading.Thread(target=in_thread)
thread.start()
asyncio.run(main())
thread.join()
for name, known in sorted(KNOWN.items()):
    print(name, *known.values())
print("at", hex(KEPT[1]))
sys.stdout.flush()
os._exit(0)
