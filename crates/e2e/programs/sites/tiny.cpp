// Functions without room for any jump, packed one behind the other. The argument selects the
// program's work. Prints "ready"; ends with its input.
#include "e2e.h"
#include <pthread.h>
#include <signal.h>
#include <stdexcept>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTION(name) ".globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " #name ", . - " #name "\n"
__asm__(
    ".text\n.p2align 4\n"
    FUNCTION(tiny_first) "lea 7(%rdi,%rdi,2), %rax\nret\n" END(tiny_first) // (what follows has nothing in front of it)
    FUNCTION(tiny_nothing) "ret\n" END(tiny_nothing)
    FUNCTION(tiny_same) "mov %rdi, %rax\nret\n" END(tiny_same)
    FUNCTION(tiny_tail) "jmp tiny_same\n" END(tiny_tail)
    FUNCTION(tiny_sum) "xor %eax, %eax\n1: add %rdi, %rax\ndec %rdi\njnz 1b\nret\n" END(tiny_sum)
    FUNCTION(tiny_calls) "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbx, 0\ncall *%rdi\npop %rbx\n.cfi_adjust_cfa_offset -8\nret\n" END(tiny_calls)
    FUNCTION(tiny_last) "mov %edi, %eax\nret\n" END(tiny_last)
    ".p2align 12\n.skip 4093, 0xcc\n" // (astride two pages)
    FUNCTION(tiny_far) "mov tiny_word(%rip), %eax\nret\n" END(tiny_far)
    ".p2align 4\n");
extern "C" {
long tiny_word = 4711;
long tiny_first(long n);
void tiny_nothing();
long tiny_same(long n);
long tiny_tail(long n);
long tiny_sum(long n);
void tiny_calls(void (*what)());
int tiny_far();
int tiny_last(int n);
}
COUNTED(tiny_first); COUNTED(tiny_nothing); COUNTED(tiny_same); COUNTED(tiny_tail); COUNTED(tiny_sum); COUNTED(tiny_calls); COUNTED(tiny_far); COUNTED(tiny_last);

static volatile int over, wrong;
static void must(bool holds) { if (!holds) wrong = 1; }
TRACED static void nested() { HIT(tiny_nothing); tiny_nothing(); }
TRACED static void throws() { throw std::runtime_error("through"); }

TRACED static void work(long n) {
    HIT(tiny_first); must(tiny_first(n) == 3 * n + 7);
    HIT(tiny_nothing); tiny_nothing();
    HIT(tiny_same); must(tiny_same(n) == n);
    HIT(tiny_tail); HIT(tiny_same); must(tiny_tail(n) == n);
    HIT(tiny_sum); must(tiny_sum(4) == 10);
    HIT(tiny_calls); tiny_calls(nested);
    HIT(tiny_far); must(tiny_far() == 4711);
    HIT(tiny_last); must(tiny_last(-1) == -1);
}
TRACED static void catches() {
    bool caught = false;
    HIT(tiny_calls);
    try { tiny_calls(throws); } catch (const std::runtime_error &) { caught = true; }
    must(caught);
}
static void *busy(void *) { while (!over) work(3); return nullptr; }
static void *some(void *) { for (long n = 0; n < 500; n++) { work(n); if (n % 50 == 0) catches(), pthread_kill(pthread_self(), SIGALRM); } return nullptr; }
static void alarmed(int) { HIT(tiny_same); must(tiny_same(5) == 5); HIT(tiny_calls); tiny_calls(nested); }
static void nothing(int) {}
static int input() { int c = getchar(); while (c != '\n' && c != EOF) c = getchar(); return c != EOF; }
static void often(long us) { struct itimerval every = {{0, us}, {0, us}}; setitimer(ITIMER_REAL, &every, nullptr); }
static void handle(int which, int mask) {
    struct sigaction action = {};
    action.sa_handler = which == SIGALRM ? alarmed : nothing;
    action.sa_flags = SA_RESTART;
    if (mask) sigfillset(&action.sa_mask);
    sigaction(which, &action, nullptr);
}
static void show() {
    SHOW(tiny_first); SHOW(tiny_nothing); SHOW(tiny_same); SHOW(tiny_tail); SHOW(tiny_sum); SHOW(tiny_calls); SHOW(tiny_far); SHOW(tiny_last);
}
static int child(int rounds) {
    pid_t pid = fork();
    if (pid == 0) { for (long n = 0; n < rounds; n++) { work(n); usleep(100); } catches(); _exit(wrong); }
    return pid;
}
static void wait_for(int pid) { int status = -1; waitpid(pid, &status, 0); if (status) { printf("a child ended with %x\n", status); wrong = 1; } }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    pthread_t threads[4];
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (!strcmp(how, "")) {
        handle(SIGALRM, 0);
        for (pthread_t &thread : threads) pthread_create(&thread, nullptr, some, nullptr);
        some(nullptr);
        for (pthread_t &thread : threads) pthread_join(thread, nullptr);
        show();
        return wrong;
    }
    if (!strcmp(how, "forks")) {
        work(1);
        fflush(stdout);
        if (fork() == 0) { work(2); catches(); _exit(wrong); }
        int status = -1;
        wait(&status);
        return wrong || status;
    }
    if (!strcmp(how, "handled")) handle(SIGTRAP, 0);
    if (!strcmp(how, "ignored")) signal(SIGTRAP, SIG_IGN);
    if (!strcmp(how, "masked")) handle(SIGUSR1, 1);
    if (!strcmp(how, "blocked")) { sigset_t set; sigemptyset(&set); sigaddset(&set, SIGTRAP); sigprocmask(SIG_BLOCK, &set, nullptr); }
    bool crowd = !strcmp(how, "busy");
    if (crowd) {
        handle(SIGALRM, 0);
        for (pthread_t &thread : threads) pthread_create(&thread, nullptr, busy, nullptr);
        often(1000);
    }
    int known = -1;
    puts("ready");
    while (input()) {
        if (!strcmp(how, "children")) {
            // One child lives on while its parent is changed, and one begins then.
            if (known < 0) known = child(5000);
            else { wait_for(known); known = child(10); wait_for(known); known = -1; }
        }
        for (long n = 0; n < 1000; n++) work(n);
        catches();
        puts("done");
    }
    if (known > 0) wait_for(known);
    over = 1;
    if (crowd) { for (pthread_t &thread : threads) pthread_join(thread, nullptr); often(0); }
    return wrong;
}
