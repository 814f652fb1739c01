// A traced library: constructor, destructor, a static function whose name another library also has.
#include "e2e.h"
#ifndef NAME
#define NAME one
#endif
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
volatile long library_starts, library_ends; // the program's, if it has them
TRACED static long same(long n) { __asm__ volatile("" : "+r"(n)); return n * 3 + 1; }
TRACED long JOIN(NAME, function)(long n) { return same(n) + 1; }
__attribute__((constructor)) TRACED static void JOIN(NAME, starts)(void) { library_starts++; }
__attribute__((destructor)) TRACED static void JOIN(NAME, ends)(void) { library_ends++; }
