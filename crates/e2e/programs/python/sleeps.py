"""Calls a method so many times; of each four, the first does not sleep for 20 ms."""
import sys
import time


class Handler:
    def get(self, n):
        if n % 4:
            time.sleep(0.02)
        return parse(n)


def parse(n):
    return sum(range(n))


handler = Handler()
print([handler.get(n) for n in range(int(sys.argv[1]))])
