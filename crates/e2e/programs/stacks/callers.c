// Records its own callers: each function notes its entry and exit, and `leaf` prints the active
// ones, outermost first. Where calltap cannot unwind to all of them, the program prints those to
// which it can.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define FUNCTION __attribute__((noinline, noclone))
#ifdef __clang__
#undef FUNCTION
#define FUNCTION __attribute__((noinline))
#endif
#define ENTER const char *before = active; active = join(active, __func__)
#define LEAVE active = before

// Volatile, as a compiler assumes that `raise` does not change static variables.
static __thread const char *volatile active = "";
static volatile int calls;

static const char *join(const char *names, const char *name)
{
    char *joined = malloc(strlen(names) + strlen(name) + 2);
    strcpy(joined, names);
    strcat(joined, " ");
    return strcat(joined, name);
}

FUNCTION void leaf(int n)
{
    calls += n;
    printf("path%s leaf\n", active);
}

FUNCTION void middle(int n)
{
    ENTER;
    leaf(n);
    LEAVE;
}

// With optimisation, its frame is gone when `middle` runs.
FUNCTION void jumps(int n)
{
    calls++;
#ifdef __OPTIMIZE__
    middle(n + 1);
#else
    ENTER;
    middle(n + 1);
    LEAVE;
#endif
}

FUNCTION int recursive(int n)
{
    ENTER;
    int sum = n > 0 ? recursive(n - 1) + n : (leaf(n), 0);
    LEAVE;
    return sum;
}

// Its frame is larger than the part of the stack that is copied.
FUNCTION int large(int n)
{
    char room[16384];
    const char *before = active;
    active = " [unknown] large";
    memset(room, n, sizeof room);
    leaf(room[n]);
    active = before;
    return room[n];
}

// Its caller cannot be found: it has neither unwinding information nor a frame pointer.
void bare(int n);
__asm__(".text\n.globl bare\n.type bare, @function\n"
        "bare: sub $24, %rsp\n call from_bare\n add $24, %rsp\n ret\n.size bare, . - bare\n"
        ".section .note.GNU-stack,\"\",@progbits\n.text");

FUNCTION void from_bare(int n)
{
    const char *before = active;
    active = " [unknown] bare from_bare";
    leaf(n);
    active = before;
}

FUNCTION void handler(int n)
{
    ENTER;
    leaf(n);
    LEAVE;
}

FUNCTION void interrupted(int n)
{
    ENTER;
    raise(n);
    LEAVE;
}

// The interrupted stack is not copied.
FUNCTION void elsewhere(int n)
{
    const char *before = active;
    active = " [unknown] elsewhere";
    leaf(n);
    active = before;
}

static ucontext_t back, there;

// Its stack ends at an unreadable page, and its caller cannot be found.
FUNCTION void coroutine(void)
{
    const char *before = active;
    active = " [unknown] coroutine";
    leaf(1);
    active = before;
}

FUNCTION void run_coroutine(size_t size)
{
    char *stack = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(stack + size, size, PROT_NONE);
    getcontext(&there);
    there.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = size };
    there.uc_link = &back;
    makecontext(&there, coroutine, 0);
    swapcontext(&back, &there);
}

FUNCTION void *thread(void *argument)
{
    ENTER;
    middle(*(int *)argument);
    LEAVE;
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argv;
    ENTER;
    middle(argc);
    jumps(argc);
    recursive(argc + 4);
    large(argc);
    bare(argc);
    signal(SIGUSR1, handler);
    interrupted(SIGUSR1);
    stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };
    sigaltstack(&stack, NULL);
    struct sigaction action = { .sa_handler = elsewhere, .sa_flags = SA_ONSTACK };
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    run_coroutine(16384);
    pthread_t other;
    pthread_create(&other, NULL, thread, &argc);
    pthread_join(other, NULL);
    LEAVE;
    return 0;
}
