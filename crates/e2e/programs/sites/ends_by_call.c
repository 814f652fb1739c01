/* A library calls a function that ends with a call into it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long calls;

__attribute__((noinline)) static int compare(const void *a, const void *b) {
    calls++;
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int main(void) {
    for (int n = 0; n < 100; n++) {
        const char *words[8] = {"e", "c", "h", "a", "i", "b", "g", "d"};
        qsort(words, 8, sizeof *words, compare);
    }
    printf("strcmp %ld\n", calls);
}
