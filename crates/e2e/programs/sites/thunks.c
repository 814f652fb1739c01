/* An interpreter whose computed gotos, with a frame on the stack, go through thunks. */
#include <stdio.h>

__attribute__((noinline)) static long step(long value, long by) { return value * 3 + by; }

__attribute__((noinline)) static long run(const unsigned char *code, long length) {
    static void *const labels[] = {&&one, &&two, &&call, &&end};
    volatile long locals[4] = {1, 2, 3, 4};
    long value = 0, at = 0;
#define NEXT goto *labels[at < length ? code[at++] : 3]
    NEXT;
one:
    value += locals[0];
    locals[1]++;
    NEXT;
two:
    value ^= locals[1];
    locals[2] += value & 7;
    NEXT;
call:
    value = step(value, locals[2]);
    NEXT;
end:
    return value + locals[3];
}

int main(void) {
    static const unsigned char code[] = {0, 1, 2, 0, 0, 1, 2, 2, 1, 0};
    unsigned long sum = 0;
    for (long n = 0; n < 2000; n++) sum = sum * 31 + (unsigned long)run(code, n % 11);
    printf("%lu\n", sum);
}
