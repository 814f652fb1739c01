// Drops its privileges as servers do, calls work all the time, and opens a library for each line of
// input. Arguments: a directory to change its root to, or "-"; the library's path, if any; "far"
// reserves 3 GB beside the dynamic linker. With "back" it changes its effective user at each line,
// between root and another one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((noinline)) long work(long n) { __asm__ volatile("" : "+r"(n)); return n * 3 + 1; }

static void open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) { puts(dlerror()); exit(2); }
    long (*function)(long) = (long (*)(long))dlsym(library, "one_function");
    long sum = 0;
    for (int i = 0; i < 1000; i++) sum = function(sum & 0xff);
    if (dlclose(library)) exit(3);
    puts("opened");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 3 && mmap(0, 3UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) return 6;
    if (argc > 1 && strcmp(argv[1], "-") && strcmp(argv[1], "back") && (chroot(argv[1]) || chdir("/"))) return 4;
    int is_back = argc > 1 && !strcmp(argv[1], "back");
    if (is_back && (setegid(65534) || seteuid(65534))) return 5;
    if (!is_back && (setgroups(0, NULL) || setgid(65534) || setuid(65534))) return 5;
    puts("ready");
    for (long n = 0;; n = work(n)) {
        struct pollfd input = {0, POLLIN, 0};
        char c;
        if (poll(&input, 1, 1) < 1) continue;
        if (read(0, &c, 1) < 1) return 0;
        if (is_back) {
            if (seteuid(geteuid() ? 0 : 65534)) return 7;
            puts("changed");
        }
        if (argc > 2) open_library(argv[2]);
    }
}
