// Uses its own control directory. Arguments: the directory, the action. Begins at a line of input.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long calls;
__attribute__((noinline)) void inner(void) { calls++; }
__attribute__((noinline)) void outer(void) { inner(); }

static char *directory;
static int open_file(const char *name, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, flags | O_CLOEXEC);
    if (file < 0) perror(name), exit(1);
    return file;
}
static void put(const char *name, const char *text) {
    int file = open_file(name, O_WRONLY | O_TRUNC);
    if (write(file, text, strlen(text)) != (ssize_t)strlen(text)) perror(name), exit(1);
    if (close(file)) perror(name), exit(1);
}
static void *keep_putting(void *unused) {
    for (;;) {
        put("set_ftrace_filter", "outer\n");
        put("current_tracer", "function");
        put("current_tracer", "nop");
    }
    return unused;
}
static void *read_pipe(void *unused) {
    char text[4096];
    int said = 0;
    int file = open_file("trace_pipe", O_RDONLY);
    puts("reads"), fflush(stdout);
    for (;;) {
        ssize_t size = read(file, text, sizeof text - 1);
        if (size < 0) perror("trace_pipe"), exit(1);
        text[size] = 0;
        if (!said && strstr(text, "outer <-")) said = puts("read"), fflush(stdout);
    }
    return unused;
}
static void read_into(char *text, size_t room, int file) {
    ssize_t size = read(file, text, room - 1);
    text[size > 0 ? size : 0] = 0;
    close(file);
}
// A forked child reads the deepest stack, and makes a call. No other function may be called deeper
// before the stack is read.
static int looks_at_its_stack(void) {
    char text[4096];
    put("stack_max_size", "0");
    put("stack_tracer_enabled", "1");
    outer();
    read_into(text, sizeof text, open_file("stack_trace", O_RDONLY));
    put("stack_tracer_enabled", "0");
    if (strstr(text, " outer+")) return 1;
    fputs(text, stderr);
    read_into(text, sizeof text, open_file("error_log", O_RDONLY));
    fputs(text, stderr);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    directory = argv[1];
    char *done[] = {"/bin/echo", "done", NULL};
    pthread_t threads[8];
    puts("ready");
    fflush(stdout);
    getchar();
    if (!strcmp(argv[2], "exec")) {
        int file = open_file("set_ftrace_filter", O_WRONLY | O_TRUNC);
        if (write(file, "outer\n", 6) != 6) return 1;
        execv(done[0], done);
    } else if (!strcmp(argv[2], "threads")) {
        for (int n = 0; n < 8; n++) pthread_create(&threads[n], NULL, keep_putting, NULL);
        usleep(300000);
        execv(done[0], done);
    } else if (!strcmp(argv[2], "children")) {
        for (int n = 0; n < 5; n++) {
            int status;
            if (fork() == 0) _exit(!looks_at_its_stack());
            if (wait(&status) < 0 || status) return printf("child %d missed its call\n", n), 0;
        }
        execv(done[0], done);
    } else {
        pthread_create(&threads[0], NULL, read_pipe, NULL);
        while (getchar() != EOF) outer();
    }
    return 0;
}
