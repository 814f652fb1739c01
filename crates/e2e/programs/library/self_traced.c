// Traces itself: checks the arguments of its callbacks, and the results of its functions.
#define _GNU_SOURCE
#include "calltap.h"
#include "e2e.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int faults;
#define EXPECT(what) do { if (!(what) && faults++ < 10) printf("%s:%d: " #what "\n", __FILE__, __LINE__); } while (0)

// KEEP: otherwise the compiler knows the results, and removes the calls.
TRACED long sum(long a, long b, long c, long d, long e, long f, long g) { KEEP(a); return a + b + c + d + e + f + g; }
TRACED long twice(long a) { long all = sum(a, a, 0, 0, 0, 0, 0); KEEP(all); return all; }
TRACED double scale(double x, int n) { KEEP(n); return x * n; }

static long calls, mask_seen, argument, parent, on_stack;
UNTRACED static void count(uint64_t ip, uint64_t parent_ip, struct calltap_ops *ops, const struct calltap_regs *regs) {
    char name[64], module[64];
    EXPECT(calltap_function_name(ip, name, sizeof name) > 0 && calltap_module_name(ip, module, sizeof module) > 0);
    EXPECT(regs->ip == ip && regs->parent_ip == parent_ip);
    if (ops->data) EXPECT(!strcmp(name, (char *)ops->data));
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    mask_seen = regs->mask;
    argument = regs->kind == CALLTAP_ENTRY ? (long)regs->r9 : -1;
    parent = parent_ip;
    on_stack = regs->kind == CALLTAP_ENTRY ? ((long *)regs->sp)[1] : -1;
}

static long others;
UNTRACED static void other(uint64_t ip, uint64_t parent_ip, struct calltap_ops *ops, const struct calltap_regs *regs) {
    (void)ip, (void)parent_ip, (void)regs;
    __atomic_fetch_add(&others, 1, __ATOMIC_RELAXED);
    EXPECT(calltap_unregister_function(ops) == -EDEADLK);
    twice(1); // recursion
}

static int stop;
UNTRACED static void *caller(void *unused) {
    (void)unused;
    for (long i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        if (twice(i) != 2 * i || scale(i, 3) != 3.0 * i) abort();
    }
    return NULL;
}

UNTRACED static void failure(const char *function, const char *reason, void *data) {
    (void)data;
    printf("refused: %s: %s\n", function, reason);
}

UNTRACED int main(int count_of_arguments, char **arguments) {
    EXPECT(calltap_init() == 0);
    struct calltap_ops one = {.func = count, .name = "one", .filter = "sum"};
    EXPECT(calltap_set_filter(&one, "x") == -EINVAL && calltap_unregister_function(&one) == -EINVAL);
    EXPECT(calltap_register_function(&one) == 0 && calltap_register_function(&one) == -EBUSY);
    one.data = (void *)"sum";
    int works = calltap_failures(failure, NULL) == 0;
    if (!works) { // another tool has these sites
        printf("refused\n");
        return twice(21) == 42 ? 7 : 8;
    }
    EXPECT(calltap_count_functions(&one) == 1 && one.id > 0 && one.mask == 1);
    EXPECT(twice(21) == 42 && sum(1, 2, 3, 4, 5, 6, 77) == 98);
    EXPECT(calls == 2 && mask_seen == 1);
    EXPECT(argument == -1 || (argument == 6 && on_stack == 77));
    EXPECT(parent > (long)main && parent < (long)main + 65536);

    struct calltap_ops two = {.func = other, .name = "two", .filter = "s* t*", .notrace = "scale"};
    EXPECT(calltap_register_function(&two) == 0 && calltap_count_functions(&two) == 2 && two.id > one.id);
    uint64_t recursions = calltap_recursions();
    calls = 0;
    EXPECT(twice(21) == 42 && scale(2, 3) == 6);
    EXPECT(calls == 1 && others == 2 && mask_seen == 3);
    EXPECT(calltap_recursions() == recursions + 4);
    EXPECT(calltap_unregister_function(&two) == 0 && two.mask == 0);

    // The callbacks are switched while other threads run.
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, caller, NULL);
    one.data = NULL;
    for (int i = 0; i < 60; i++) {
        EXPECT(calltap_set_filter(&one, i % 3 == 0 ? "twice scale" : i % 3 == 1 ? "sum" : "none") == 0);
        EXPECT(i % 2 == 0 ? calltap_register_function(&two) == 0 : calltap_unregister_function(&two) == 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);

    // The library is loaded later, and unloaded while it is traced.
    EXPECT(calltap_set_filter(&one, "in_the_library") == 0);
    for (int i = 0; count_of_arguments > 1 && i < 3; i++) {
        void *library = dlopen(arguments[1], RTLD_NOW);
        EXPECT(library && calltap_rescan() == 0);
        int (*function)(int) = (int (*)(int))dlsym(library, "in_the_library");
        int refused = calltap_failures(NULL, NULL);
        calls = 0;
        EXPECT(function && function(4) == 5 && (refused || calls == 1));
        dlclose(library);
        if (i == 1) EXPECT(calltap_rescan() == 0);
    }

    // A forked child goes on.
    EXPECT(calltap_set_filter(&one, "sum") == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        calls = 0;
        int good = twice(1) == 2 && calls == 1 && calltap_unregister_function(&one) == 0 && twice(1) == 2 && calls == 1;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT(status == 0);
    EXPECT(calltap_unregister_function(&one) == 0);
    calls = 0;
    EXPECT(twice(2) == 4 && calls == 0);
    printf("%d faults\n", faults);
    return faults ? 1 : 0;
}
