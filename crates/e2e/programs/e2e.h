// Macros of the programs: functions that are not inlined, and that count their calls.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#define TRACED __attribute__((noinline))
#else
#define TRACED __attribute__((noipa))
#endif
#define UNTRACED __attribute__((noinline, no_instrument_function, patchable_function_entry(0, 0)))

#define COUNTED(name) static long calls_##name
#define HIT(name) __atomic_fetch_add(&calls_##name, 1, __ATOMIC_RELAXED)
#define SHOW(name) printf("calls " #name " %ld\n", __atomic_load_n(&calls_##name, __ATOMIC_RELAXED))
#define SHOW_ABOUT(name) printf("about " #name " %ld\n", __atomic_load_n(&calls_##name, __ATOMIC_RELAXED))
#define KEEP(x) __asm__ volatile("" : : "r"(x) : "memory")
