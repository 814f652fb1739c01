// An event loop on the thread's own stack that resumes coroutines, drops some of them in the
// middle, and catches faults by siglongjmp from a handler on another stack.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { COROUTINES = 16, ROOM = 1 << 18 };
static struct coroutine { ucontext_t own; int left; } all[COROUTINES];
static ucontext_t loop_context;
static struct coroutine *current;
static sigjmp_buf fault;
static long rounds;
static atomic_int is_over, is_short;
static int *volatile nowhere;

TRACED void parse(void) { KEEP(0); }
TRACED void wait_io(void) { swapcontext(&current->own, &loop_context); KEEP(0); }
TRACED void connection(void) {
    for (int i = 0; i < 4; i++) { parse(); wait_io(); }
    current->left = 0;
    wait_io();
    KEEP(0);
}
TRACED void poll_events(void) { KEEP(0); }
TRACED void touch(void) { *nowhere = 1; KEEP(0); }
TRACED void handler(int signal) { KEEP(signal); siglongjmp(fault, 1); }
TRACED void accept_one(struct coroutine *c) {
    getcontext(&c->own);
    c->own.uc_stack.ss_size = ROOM;
    makecontext(&c->own, connection, 0);
    c->left = 1;
}
TRACED void request(void) { KEEP(0); }
TRACED void loop(void) {
    stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&other, NULL);
    for (int i = 0; i < COROUTINES; i++)
        all[i].own.uc_stack.ss_sp = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (!is_over) {
        poll_events();
        for (int i = 0; i < COROUTINES; i++) {
            current = &all[i];
            // Some are dropped while they wait.
            if (!current->left || rounds % 7 == i) accept_one(current);
            swapcontext(&loop_context, &current->own);
        }
        if (!sigsetjmp(fault, 1)) touch();
        request();
        rounds++;
        if (is_short && rounds == 100) is_over = 1;
        if (!is_short) usleep(200);
    }
}
UNTRACED static void *worker(void *none) { loop(); return none; }
UNTRACED static void *reader(void *none) {
    while (getchar() != EOF) continue;
    is_over = 1;
    return none;
}
// The loop runs in the first thread (first, short) or in another one (other), until the input ends
// or for 100 rounds (short).
int main(int count, char **words) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    const char *where = count > 1 ? words[1] : "first";
    pthread_t thread;
    puts("ready");
    fflush(stdout);
    is_short = !strcmp(where, "short");
    int is_other = !strcmp(where, "other");
    if (!is_short) pthread_create(&thread, NULL, is_other ? worker : reader, NULL);
    if (is_other) reader(NULL); else loop();
    if (!is_short) pthread_join(thread, NULL);
    return 0;
}
