"""Uses the extension module `extends`, whose directory is the first argument."""
import sys

sys.path.insert(0, sys.argv[1])
import extends


def square(n):
    return n * extends.add(n)


def fails(n):
    if n == 5:
        raise ValueError("as wanted")
    return n


def run():
    total = sum(extends.add(n) for n in range(100)) + extends.each(square)
    try:
        extends.each(fails)
    except ValueError as error:
        total += len(str(error))
    return total


print(run())
