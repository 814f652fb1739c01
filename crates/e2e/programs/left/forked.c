// Forks children in the middle of calls, through which the children return. Records the depth and
// the caller of each call.
#include "e2e.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct { char call[56]; long count; } *notes;
static __thread const char *open_calls[16];
static __thread int depth;
static __thread int generation;
static __thread jmp_buf back;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

UNTRACED static void enter(const char *name) {
    char call[56];
    snprintf(call, sizeof call, "%s,%d,%s", name, depth, depth ? open_calls[depth - 1] : "");
    open_calls[depth++] = name;
    long place = 0;
    while (*notes[place].call && strcmp(notes[place].call, call)) place++;
    strcpy(notes[place].call, call);
    notes[place].count++;
}
#define LEAVE() (depth--)

UNTRACED static void await(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status) abort();
}
TRACED long leaf(long n) { enter("leaf"); KEEP(n); LEAVE(); return n * 3 + 1; }
TRACED void jumps(long n) { enter("jumps"); leaf(n); LEAVE(); longjmp(back, 1); }
TRACED long forks(long n) {
    enter("forks");
    n = leaf(n);
    if (!setjmp(back)) jumps(n);
    pid_t child = fork();
    if (child) await(child); else generation++;
    n = leaf(n) + generation;
    if (generation == 1) n += leaf(n);
    LEAVE();
    return n & 0xffff;
}
TRACED long middle(long n) { enter("middle"); n = forks(leaf(n)); n = leaf(n); LEAVE(); return n; }
TRACED long again(long n) { enter("again"); n = leaf(middle(n)); LEAVE(); return n; }
TRACED long outer(long n) {
    enter("outer");
    n = middle(n);
    if (generation == 1) n = again(n);
    n = leaf(n);
    LEAVE();
    return n;
}
// In a child, the program ends here.
TRACED void rounds(long n) {
    enter("rounds");
    for (int i = 0; i < n && !generation; i++) outer(i);
    leaf(n);
    LEAVE();
}
TRACED static void *thread(void *n) {
    pthread_mutex_lock(&lock);
    enter("thread");
    rounds((long)n);
    LEAVE();
    if (generation) _exit(0);
    pthread_mutex_unlock(&lock);
    return NULL;
}
int main(int argc, char **argv) {
    notes = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc > 1 && !strcmp(argv[1], "threads")) {
        pthread_t t[4];
        for (long i = 0; i < 4; i++) pthread_create(&t[i], NULL, thread, (void *)3);
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    } else {
        enter("main");
        if (argc > 1) { puts("ready"); fflush(stdout); getchar(); }
        rounds(5);
        if (generation) _exit(0);
    }
    for (int i = 0; *notes[i].call; i++) printf("call %s %ld\n", notes[i].call, notes[i].count);
    if (argc > 1 && !strcmp(argv[1], "waits")) { puts("done"); fflush(stdout); getchar(); }
    return 0;
}
