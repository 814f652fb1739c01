/* The same number of calls by any number of threads: all at once, or so many at a time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noipa)) static long leaf(long n) {
    return n + 1;
}

__attribute__((noipa)) static long branch(long n) {
    return leaf(n) + leaf(n);
}

static void *work(void *calls) {
    long n = 0;
    for (long i = (long)calls / 3; i > 0; i--)
        n += branch(i);
    return (void *)n;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    long threads = atol(argv[1]), calls = atol(argv[2]) / threads, sum = 0;
    pthread_t *all = calloc((size_t)threads, sizeof *all);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    long at_a_time = argc > 3 ? atol(argv[3]) : threads;
    for (long first = 0; first < threads; first += at_a_time) {
        long end = first + at_a_time < threads ? first + at_a_time : threads;
        for (long i = first; i < end; i++)
            if (pthread_create(&all[i], &small, work, (void *)calls))
                return 1;
        for (long i = first; i < end; i++) {
            void *result;
            pthread_join(all[i], &result);
            sum += (long)result;
        }
    }
    printf("%ld\n", sum);
}
