// Preloaded into a shell (LD_PRELOAD): at fork and exec it calls functions that have the names of
// the kernel's own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static volatile long calls;
#define FUNCTION(name) __attribute__((noinline)) void name(void) { calls++; }
FUNCTION(kernel_clone)
FUNCTION(_do_fork)
FUNCTION(_raw_spin_lock)
FUNCTION(do_execveat_common)

pid_t fork(void) {
    kernel_clone();
    _do_fork(); // in kernels before 5.10
    _raw_spin_lock();
    return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
}

// A child made by vfork shares its parent's stack, to which a function in between cannot return
// twice.
pid_t vfork(void) { return fork(); }

int execve(const char *path, char *const arguments[], char *const environment[]) {
    do_execveat_common();
    return ((int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execve"))(path, arguments, environment);
}
