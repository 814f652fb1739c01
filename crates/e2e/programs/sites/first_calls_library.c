// A library that is opened and closed while its program is traced.
__attribute__((noipa)) static long inner(long n) { return n + 1; }
__attribute__((noipa)) long in_library(long n) { return inner(n) + 2; }
