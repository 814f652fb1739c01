/* Ends before its first thread is set up: in a resolver, which a static program runs first of all. */
#include <stdio.h>

static int one(int x) {
    return x + 1;
}

static void *resolve(void) {
#ifdef EXITS
    long unused;
    __asm__ volatile("syscall" : "=a"(unused) : "a"(231L), "D"(7L) : "rcx", "r11", "memory");
#else
    *(volatile int *)0 = 1;
#endif
    return one;
}

int chosen(int) __attribute__((ifunc("resolve")));

int main(void) {
    printf("%d\n", chosen(1));
}
