"""Calls of every kind. `count FILE`: the program counts its own by sys.setprofile and writes them there; `run`: it does not."""
import asyncio
import collections
import functools
import json
import sys
import threading

# Threads add to it at once: an append is not interrupted.
called = []


def profile(frame, event, argument):
    if event == "call" and frame.f_globals.get("__name__") == "__main__":
        # Code objects have qualified names from CPython 3.11 on.
        called.append("__main__." + getattr(frame.f_code, "co_qualname", frame.f_code.co_name))


class Base:
    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        return self.n < other.n

    @property
    def twice(self):
        return self.n * 2

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def one():
        return 1


class Child(Base):
    def __init__(self, n):
        super().__init__(n)

    def __del__(self):
        leaf(self)


def leaf(_):
    return 1


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def numbers(n):
    for i in range(n):
        yield i


def delegating(n):
    yield from numbers(n)


def fails(n):
    if n == 0:
        raise ValueError(n)
    try:
        fails(n - 1)
    finally:
        leaf(n)


def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)


def wrapped(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@wrapped
def decorated(x):
    return x + 1


def closed():
    first = numbers(10)
    next(first)
    first.close()
    second = numbers(10)
    next(second)
    try:
        second.throw(KeyError)
    except KeyError:
        pass


async def waits(n):
    await asyncio.sleep(0)
    return n


async def streams(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def gathers(n):
    results = await asyncio.gather(*(waits(i) for i in range(n)))
    async for i in streams(3):
        results.append(i)
    return sum(results)


def größe(n):
    return n


def work(k):
    total = 0
    for i in range(k):
        total += fib(10) + sum(numbers(5)) + sum(delegating(3)) + decorated(i) + größe(i)
        total += sorted([Child(j) for j in (3, 1, 2)])[0].twice + Base.make(4).n + Base.one()
        try:
            fails(3)
        except ValueError:
            pass
        total += json.loads(json.dumps({"a": [i, {"b": None}]}, indent=1))["a"][0]
        # Code objects that live for a moment: the next one may come to be at the same address.
        made = {"__name__": "__main__"}
        exec(compile(f"def made_{i}():\n    return {i}\nmade_{i}()", f"<made {i}>", "exec"), made)
    closed()
    return total + deep(150)


def run():
    results = []
    threads = [threading.Thread(target=lambda k=k: results.append(work(k))) for k in (20, 21, 22)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    results.append(asyncio.run(gathers(5)))
    return sorted(results)


if sys.argv[1] == "count":
    threading.setprofile(profile)
    sys.setprofile(profile)
    results = run()
    sys.setprofile(None)
    with open(sys.argv[2], "w") as file:
        json.dump(collections.Counter(called), file)
else:
    results = run()
print(results, sys.getprofile())
