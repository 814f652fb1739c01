// Maps a page of its own code a second time, elsewhere, and runs that copy too. Its callees are
// outside of the page.
#include "e2e.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>

typedef long function(long);

TRACED __attribute__((aligned(4096))) long inside(long n) {
    for (volatile int i = 0; i < 3; i++) n += i;
    return n;
}
TRACED __attribute__((aligned(4096))) long outside(long n) { return inside(n) * 3; }

int main(void) {
    extern char __executable_start;
    setvbuf(stdout, NULL, _IONBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    int file = open("/proc/self/exe", O_RDONLY);
    long offset = (char *)(uintptr_t)inside - &__executable_start;
    char *piece = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, offset);
    if (piece == MAP_FAILED || memcmp(piece, (char *)(uintptr_t)inside, 16)) return 1;
    puts("ready");
    while (getchar() != EOF) {
        if (outside(1) + ((function *)(uintptr_t)piece)(1) != 4 * 4) return 2;
        puts("done");
    }
}
