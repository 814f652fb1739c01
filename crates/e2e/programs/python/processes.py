"""Calls in processes of a pool, started as the argument says, in a forked child, and beneath a profiler of the program's own."""
import cProfile
import multiprocessing
import os
import sys


def child(n):
    return work(n)


def work(n):
    return n * n


class Late:
    def go(self):
        return work(3)


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(3) as pool:
        print(sum(pool.map(child, range(50), chunksize=1)))
    pid = os.fork()
    if pid == 0:
        [Late().go() for _ in range(7)]
        os._exit(0)
    os.waitpid(pid, 0)
    profiler = cProfile.Profile()
    profiler.enable()
    [work(n) for n in range(5)]
    profiler.disable()
    print([entry.callcount for entry in profiler.getstats() if getattr(entry.code, "co_name", "") == "work"])
