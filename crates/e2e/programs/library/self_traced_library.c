// A library that self_traced.c opens.
int in_the_library(int n) { return n + 1; }
