// Makes calls that work, wait and are preempted, and prints what the kernel has accounted of each:
// wall time, processor time, and processor time in the words of getrusage, in nanoseconds.
#define _GNU_SOURCE
#include "e2e.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_ready, ends[2], faults;
static char *page;

UNTRACED static long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

UNTRACED static void work_for(long ms) {
    long end = now(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
}

TRACED void burn(void) { work_for(300); }

TRACED void nap(void) {
    for (int n = 0; n < 10; n++) usleep(30000);
}

TRACED void want(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

TRACED void await_change(void) {
    pthread_mutex_lock(&guard);
    while (!is_ready) pthread_cond_wait(&changed, &guard);
    pthread_mutex_unlock(&guard);
}

TRACED void await_byte(void) {
    char byte;
    if (read(ends[0], &byte, 1) != 1) abort();
}

// Touches a page that another thread supplies late, as a slow disk does.
TRACED void await_page(void) { KEEP(*(volatile char *)page); }

TRACED void alternate(void) {
    for (int n = 0; n < 10; n++) {
        work_for(15);
        usleep(15000);
    }
}

// Another thread works on the same processor.
TRACED void compete(void) { work_for(300); }

static void *holder(void *held) {
    pthread_mutex_lock(&lock);
    *(volatile int *)held = 1;
    usleep(200000);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *changer(void *unused) {
    usleep(150000);
    pthread_mutex_lock(&guard);
    is_ready = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&guard);
    return unused;
}

static void *writer(void *unused) {
    usleep(150000);
    if (write(ends[1], "x", 1) != 1) abort();
    return unused;
}

static void *supplier(void *unused) {
    struct uffd_msg message;
    if (read(faults, &message, sizeof message) != sizeof message) abort();
    usleep(150000);
    struct uffdio_zeropage zero = {.range = {(unsigned long)page, 4096}};
    if (ioctl(faults, UFFDIO_ZEROPAGE, &zero) != 0) abort();
    return unused;
}

static void *neighbour(void *unused) {
    work_for(300);
    return unused;
}

UNTRACED static long accounted(void) {
    char text[64] = "";
    int file = open("/proc/thread-self/schedstat", O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) <= 0) abort();
    close(file);
    return atol(text);
}

UNTRACED static long used(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000L +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000L;
}

UNTRACED static void run(const char *name, void (*function)(void)) {
    long cpu = accounted(), own = used(), wall = now(CLOCK_MONOTONIC);
    function();
    wall = now(CLOCK_MONOTONIC) - wall;
    printf("%s %ld %ld %ld\n", name, wall, accounted() - cpu, used() - own);
}

UNTRACED static void run_with(const char *name, void (*function)(void), void *(*other)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, other, NULL);
    run(name, function);
    pthread_join(thread, NULL);
}

// Has page faults of a page reported to this process, if it may.
static int await_faults(void) {
    faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register pages = {.range = {(unsigned long)page, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    return faults >= 0 && ioctl(faults, UFFDIO_API, &api) == 0 && ioctl(faults, UFFDIO_REGISTER, &pages) == 0;
}

int main(void) {
    if (pipe(ends) != 0) return 1;
    run("burn", burn);
    run("nap", nap);
    volatile int held = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, holder, (void *)&held);
    while (!held) usleep(100);
    run("want", want);
    pthread_join(thread, NULL);
    run_with("await_change", await_change, changer);
    run_with("await_byte", await_byte, writer);
    if (await_faults()) run_with("await_page", await_page, supplier);
    run("alternate", alternate);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    run_with("compete", compete, neighbour);
    return 0;
}
