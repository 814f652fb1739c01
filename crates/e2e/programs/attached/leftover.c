// Has a frame that keeps an address of the dynamic linker for the program's lifetime, and a thread
// that never waits.
#include "e2e.h"

extern void *__tls_get_addr(void *);

TRACED int work(int n) { KEEP(n); return n * 3 + 1; }

int main(void) {
    void *volatile kept[4] = { (char *)__tls_get_addr + 1, (char *)__tls_get_addr + 5, 0, 0 };
    volatile int sum = 0;
    puts("ready");
    fflush(stdout);
    for (;;) sum = work(sum) + (kept[2] != 0);
}
