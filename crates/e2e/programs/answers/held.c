// Works without a wait of its own, but calltap may stop its thread: many calls, a library that is
// opened, and one call that lasts until the input ends.
#define _GNU_SOURCE
#include "e2e.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int is_over;

TRACED void step(void) { KEEP(0); }

TRACED void steps(long count) {
    while (count--)
        step();
}

TRACED void open_library(const char *name) {
    if (!dlopen(name, RTLD_NOW))
        puts("not opened");
}

TRACED void spin(void) {
    while (!is_over)
        KEEP(0);
}

TRACED static void *spinner(void *nothing) {
    spin();
    return nothing;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "steps";
    if (!strcmp(what, "steps"))
        steps(3000000);
    if (!strcmp(what, "open"))
        open_library(words[2]);
    if (!strcmp(what, "spin")) {
        pthread_t thread;
        puts("ready");
        fflush(stdout);
        getchar();
        pthread_create(&thread, 0, spinner, 0);
        puts("inside");
        fflush(stdout);
        while (getchar() != EOF)
            continue;
        is_over = 1;
        pthread_join(thread, 0);
    }
    return 0;
}
