// Opened by self_traced.c.
int in_the_library(int n) { return n + 1; }
