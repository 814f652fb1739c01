"""Prints the nanoseconds of processor time that a call of an empty function takes.

usage: python.py alone | cProfile | viztracer | nothing LIBRARY | clock LIBRARY

LIBRARY is python.c, compiled: its functions do nothing at each entry and return, or read the clock.
"""

import ctypes
import sys
import time

CALLS = 500_000


def empty():
    pass


def calls():
    begin = time.process_time()
    for _ in range(CALLS):
        empty()
    return (time.process_time() - begin) / CALLS * 1e9


def least():
    return min(calls() for _ in range(5))


class Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


def with_functions(name, library):
    """Measures while the interpreter calls functions in C, by the cheapest means that it has."""
    functions = ctypes.CDLL(library)
    address = lambda kind: ctypes.cast(getattr(functions, kind + "_" + name), ctypes.c_void_p)
    if sys.version_info < (3, 12):
        set_profile = ctypes.pythonapi.PyEval_SetProfile
        set_profile.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        set_profile(address("profile"), None)
        took = least()
        set_profile(None, None)
        return took
    ctypes.c_void_p.in_dll(functions, "none").value = id(None)
    new = ctypes.pythonapi.PyCMethod_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p] * 4
    fastcall = 0x80
    method = Method(b"monitor", address("monitor"), fastcall, None)
    function = new(ctypes.addressof(method), None, None, None)
    tool, events = sys.monitoring.PROFILER_ID, sys.monitoring.events
    sys.monitoring.use_tool_id(tool, "bench")
    for event in (events.PY_START, events.PY_RETURN):
        sys.monitoring.register_callback(tool, event, function)
    sys.monitoring.set_events(tool, events.PY_START | events.PY_RETURN)
    took = least()
    sys.monitoring.set_events(tool, 0)
    return took


def main():
    name = sys.argv[1]
    if name == "cProfile":
        import cProfile

        with cProfile.Profile():
            took = least()
    elif name == "viztracer":
        import viztracer

        with viztracer.VizTracer(verbose=0, output_file="/dev/null", tracer_entries=1_000_000):
            took = least()
    elif name == "alone":
        took = least()
    else:
        took = with_functions(name, sys.argv[2])
    print(f"{took:.1f}")


main()
