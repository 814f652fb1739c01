// Notes which files' code is mapped, as ThreadSanitizer does in its initializer, which the dynamic
// linker runs before all others; those addresses must not become free.
#include "arena.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static char noted[1 << 16], now[1 << 16];

// A sanitizer is an allocator, too. The C library's own could not be called while the linker works.
UNTRACED void *malloc(size_t size) { return take(size); }

UNTRACED static char *read_maps(void) {
    int maps = open("/proc/self/maps", O_RDONLY);
    size_t length = 0;
    for (ssize_t got; (got = read(maps, now + length, sizeof now - length - 1)) > 0;) length += (size_t)got;
    close(maps);
    now[length] = 0;
    return now;
}

// ThreadSanitizer keeps its notes in memory of such a file.
UNTRACED static void keep_notes(void) {
    char name[64];
    snprintf(name, sizeof name, "tsan.rodata.%d", getpid());
    int file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || ftruncate(file, 4096) || mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) abort();
    unlink(name);
    close(file);
}

UNTRACED static void initialize(void) {
    keep_notes();
    // Other initializers take time, too.
    for (int n = 0; n < 400; n++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        for (char *line = strtok(read_maps(), "\n"); line; line = strtok(NULL, "\n"))
            if (strstr(line, " r-x") && strchr(line, '/') && !strstr(noted, line)) strcat(strcat(noted, line), "\n");
    }
}
__attribute__((section(".preinit_array"), used)) static void (*first)(void) = initialize;

TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }

int main(void) {
    puts("ready");
    fflush(stdout);
    for (char c; read(0, &c, 1) > 0;) for (long n = 0; n < 1000; n++) work(n);
    static unsigned char pages[1 << 16];
    for (char *line = strtok(noted, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) != 2 || (end - start) / 4096 > sizeof pages) abort();
        if (mincore((void *)start, end - start, pages)) return printf("free: %s\n", line), 1;
    }
    return 0;
}
