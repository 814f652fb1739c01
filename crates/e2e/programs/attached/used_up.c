// Has used up one of its limits. Prints "ready"; ends with its input. Argument: the limit.
#define _GNU_SOURCE
#include "e2e.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

TRACED long work(long n) { return n * 5 + 1; }

static void *page(int protection) { return mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strcmp(what, "files")) {
        struct rlimit few = {64, 64};
        setrlimit(RLIMIT_NOFILE, &few);
        while (open("/dev/null", O_RDONLY) >= 0) {}
    }
    if (!strcmp(what, "locked memory")) {
        struct rlimit little = {8 << 20, 8 << 20};
        setrlimit(RLIMIT_MEMLOCK, &little);
        if (setuid(65534) || mlockall(MCL_FUTURE)) return 2;
        page(PROT_READ | PROT_WRITE);
    }
    // Neighbours with the same protection are one mapping.
    if (!strcmp(what, "mappings")) for (int n = 0; page(n % 2 ? PROT_READ : PROT_READ | PROT_WRITE) != MAP_FAILED; n++) {}
    printf("ready\n");
    long sum = 0;
    for (int c; (c = getchar()) != EOF;) sum += work(c);
    return sum == 1;
}
