"""Prints the arguments of its calls in JSON, as calltap shows them."""

import json


class Thing:
    pass


class Text(str):
    pass


class Number(int):
    pass


def shown(value):
    """Returns the value in calltap's form."""
    if type(value) is str:
        return value.encode()[:64].decode() if len(value.encode()) <= 64 else cut(value)
    if value is None or type(value) in (bool, float):
        return value
    if type(value) is int and abs(value) < 2**63:
        return value
    return f"<{type(value).__name__}>"


def cut(value):
    return value.encode()[:64].decode("utf-8", "replace")


def show(a, b=2, *more, key=None, **others):
    return a


def named(a, b, c):
    return b


def cell(kept):
    return lambda: kept


VALUES = [0, 1, -1, 255, 2**30 - 1, 2**30, -(2**30), 2**31, 2**60 - 1, 2**60, -(2**60), 2**63 - 1, 1 - 2**63, 2**63, -(2**63), 2**64, 10**40]
VALUES += ["", "x", "größe", "日本", "𝄞", "a\nb\"c", "x" * 64, "x" * 65, "ß" * 40]
VALUES += [None, True, False, 0.0, 1.5, -2.25, 1e300, [], {}, (), Thing(), Text("t"), Number(3), int, b"bytes"]
for value in VALUES:
    show(value, key=value)
    named(value, value, [value])
for value in VALUES:
    value = shown(value)
    print("show", json.dumps(dict(a=value, b=2, more="<tuple>", key=value, others="<dict>")))
    print("named", json.dumps(dict(b=value, c="<list>")))
cell(5)
