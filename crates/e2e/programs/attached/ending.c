// Has so many mappings that its end takes long.
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    // Neighbours with different protection remain separate mappings; by default a process may have
    // 65,530.
    for (int n = 0; n < 60000; n++) {
        int protection = n % 2 ? PROT_READ | PROT_WRITE : PROT_READ | PROT_WRITE | PROT_EXEC;
        char *page = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) break;
        *page = 1;
    }
    puts("ready");
    fflush(stdout);
    return getchar();
}
