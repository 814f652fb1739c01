"""Two tasks that wait in turns, until the input ends."""

import asyncio
import sys
import threading

over = threading.Event()


async def once():
    await asyncio.sleep(0.02)


async def worker():
    while not over.is_set():
        await once()


async def main():
    await asyncio.gather(worker(), worker())


def reads():
    sys.stdin.read()
    over.set()


threading.Thread(target=reads, daemon=True).start()
print("ready", flush=True)
asyncio.run(main())
print("turned", flush=True)
