// clang-16 -O1 -s -fbasic-block-sections=all
// each block has unwinding information of its own, and labels in a table lead to some; the block that takes the address jumps there by way of two others
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#define FUNCTION __attribute__((noinline))
typedef unsigned long word;
static volatile word sink;
FUNCTION word p0_run(word x) {
static void *table[] = {&&l0, &&l1, &&l2, &&l3, &&end};
void *code[9], **next = code; word w = x;
for (int i = 0; i < 8; i++, w = w * 5 + 1) code[i] = table[w % 4];
code[8] = table[4];
goto **next++;
l0: x = x % 553 + 546; goto **next++;
l1: x += 607; goto **next++;
l2: x += 489; x -= sink & 583; goto **next++;
l3: x ^= x >> 18; goto **next++;
end: return x;
}
int main(int count, char **words)
{
    word sum = 0, rounds = count > 1 ? strtoul(words[1], 0, 10) : 1;
    for (word round = 0; round < rounds; round++) {
        sum = sum * 31 + p0_run(round + 3);
        if (rounds < 100) printf("%lu\n", sum);
    }
    printf("%lu\n", sum);
    return (int)(sum % 7);
}
