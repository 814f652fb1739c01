// Calls and prints for some seconds, at full speed in between.
#include "e2e.h"
#include <time.h>
#include <unistd.h>
COUNTED(work);
TRACED long work(long n) { HIT(work); return n * 5 + 1; }
int main(int argc, char **argv) {
    long n = 1, rounds = argc > 1 ? atoi(argv[1]) : 40;
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 300000; k++) n = work(n) & 0xfffff;
        printf("%d %ld\n", i, n);
        fflush(stdout);
        usleep(20000);
    }
    SHOW_ABOUT(work);
    return 21;
}
