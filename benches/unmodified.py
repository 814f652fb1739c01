#!/usr/bin/env python3
"""Frida beside calltap: usage: unmodified.py PID REGEX SECONDS. Says "on" when all functions are intercepted."""

import sys
import time

import frida

SCRIPT = """
const calls = Memory.alloc(8);
const counter = new CModule(`
    #include <gum/guminterceptor.h>
    extern volatile long calls;
    void onEnter(GumInvocationContext *ic) { calls++; }
    void onLeave(GumInvocationContext *ic) { calls++; }
`, { calls });
const wanted = new RegExp('%s');
let count = 0;
for (const symbol of Process.enumerateModules()[0].enumerateSymbols()) {
    if (symbol.type === 'function' && wanted.test(symbol.name)) {
        Interceptor.attach(symbol.address, counter);
        count++;
    }
}
Interceptor.flush();
send(count);
"""

pid, pattern, seconds = sys.argv[1:]
session = frida.attach(int(pid))
script = session.create_script(SCRIPT % pattern)
script.on("message", lambda message, _: print(message, file=sys.stderr))
script.load()
print("on", flush=True)
time.sleep(float(seconds))
session.detach()
