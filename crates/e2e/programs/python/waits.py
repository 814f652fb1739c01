"""Calls a function that calls no other, and waits, until the input ends."""
import select
import sys


def step(n):
    return n + 1


print("ready", flush=True)
n = 0
while not select.select([sys.stdin], [], [], 0.001)[0]:
    n = step(n)
