"""Threads that compute and check every result, until the input ends."""
import asyncio
import json
import sys
import threading

THREADS = 4
over = threading.Event()
errors = []
rounds = [0] * THREADS


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def squares(n):
    for i in range(n):
        yield i * i


class Node:
    def __init__(self, value, left=None, right=None):
        self.value, self.left, self.right = value, left, right

    def total(self):
        below = [node.total() for node in (self.left, self.right) if node]
        return self.value + sum(below)


def tree(n):
    return Node(n, tree(n - 1), tree(n - 1)) if n else Node(0)


def fails(n):
    if n == 0:
        raise KeyError(n)
    fails(n - 1)


async def waits(n):
    await asyncio.sleep(0)
    return n


async def gathers():
    return sum(await asyncio.gather(*(waits(i) for i in range(10))))


def inlined():
    i = 0
    while i < 200:
        fib(5)
        i += 1


def check(holds, what):
    if not holds:
        errors.append(what)
        over.set()


def work(k):
    while not over.is_set():
        check(fib(12) == 144, "fib")
        check(sum(squares(50)) == 40425, "squares")
        check(tree(5).total() == 57, "tree")
        try:
            fails(20)
            check(False, "no error")
        except KeyError as error:
            check(error.args == (0,), "arguments of the error")
        check(json.loads(json.dumps({"k": list(range(20))}))["k"] == list(range(20)), "json")
        check(k or asyncio.run(gathers()) == 45, "asyncio")
        check(sys.getprofile() is None, "a profile function is seen")
        inlined()
        thread = threading.Thread(target=fib, args=(8,))
        thread.start()
        thread.join()
        rounds[k] += 1


threads = [threading.Thread(target=work, args=(k,)) for k in range(THREADS)]
[thread.start() for thread in threads]
print("ready", flush=True)
sys.stdin.read()
over.set()
[thread.join() for thread in threads]
check(min(rounds) > 0, "a thread did nothing")
print("errors", errors, flush=True)
sys.exit(1 if errors else 0)
