// A thread whose stack another thread of the program supplies, page by page (userfaultfd). Between
// its frames lie pages that are missing. Prints "ready"; ends with its input.
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STACK (1 << 20)
#define HOLE 24000
static int faults;
static char *stack;
static volatile int over;
static long wrong, supplied;
static void rest(long us) { struct timespec t = {0, us * 1000}; nanosleep(&t, NULL); }

TRACED long leaf(long n) { KEEP(&n); return n + 1; }
TRACED long rests(long n) { rest(2000); KEEP(&n); return leaf(n); }
// Touches only the ends of its frame.
TRACED long inner(long n) { volatile char hole[HOLE]; hole[0] = hole[HOLE - 1] = 1; return rests(n) + hole[0]; }
TRACED long outer(long n) { volatile char hole[HOLE]; hole[0] = hole[HOLE - 1] = 1; return inner(n) + hole[0]; }

static void *supplies(void *unused) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffd_msg fault;
    while (read(faults, &fault, sizeof fault) == sizeof fault) {
        struct uffdio_copy copy = {.dst = fault.arg.pagefault.address & -4096ul, .src = (unsigned long)page, .len = 4096};
        if (ioctl(faults, UFFDIO_COPY, &copy) == 0) supplied++;
    }
    return unused;
}

static void *works(void *unused) {
    while (!over) {
        if (outer(40) != 43) wrong++;
        unsigned long end = ((unsigned long)__builtin_frame_address(0) - 8192) & -4096ul;
        madvise(stack, end - (unsigned long)stack, MADV_DONTNEED);
    }
    return unused;
}

int main(void) {
    // Without privileges, only accesses of the program itself wait.
    faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (faults < 0) faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {.range = {(unsigned long)stack, STACK}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range)) return perror("userfaultfd"), 1;
    pthread_t supplier, worker;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK);
    pthread_create(&supplier, NULL, supplies, NULL);
    pthread_create(&worker, &attributes, works, NULL);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    over = 1;
    pthread_join(worker, NULL);
    if (wrong || !supplied) fprintf(stderr, "%ld wrong, %ld pages supplied\n", wrong, supplied);
    return wrong || !supplied;
}
