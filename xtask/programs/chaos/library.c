// The library that libraries.c opens and closes.
__attribute__((noinline)) static long once(long n) { __asm__ volatile("" : "+r"(n)); return n; }
long twice(long n) { return once(n) + once(n); }
