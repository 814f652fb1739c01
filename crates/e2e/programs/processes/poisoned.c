// Built with AddressSanitizer: prints the findings of its runtime, and its environment, also of a
// child that it starts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int sum(const char *text) {
    int sum = 0;
    while (*text) sum += *text++;
    return sum;
}

int main(int argc, char **argv) {
    char *volatile text = malloc(6);
    strcpy(text, "hello");
    int all = 0;
    for (int i = 0; i < 1000; i++) all += sum(text);
    const char *preload = getenv("LD_PRELOAD");
    printf("%d %s\n", all, preload ? preload : "nothing");
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "again")) {
        if (fork() == 0) execl("/proc/self/exe", argv[0], (char *)NULL);
        int status;
        if (wait(&status) < 0 || status != 0) return 2;
    } else if (argc > 1) {
        ((volatile char *)text)[7] = 1;
    }
    free(text);
    return 0;
}
