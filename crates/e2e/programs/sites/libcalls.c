// Calls libraries from its functions, by tail calls, with results in vector registers, and by
// functions that return twice or not at all. Counts its calls. Without __NO_CTYPE the C library's
// functions for characters would be inlined.
#define __NO_CTYPE
#include "e2e.h"
#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>

COUNTED(strlen); COUNTED(abs); COUNTED(toupper); COUNTED(qsort); COUNTED(_setjmp); COUNTED(longjmp); COUNTED(cos);
COUNTED(malloc); COUNTED(free); COUNTED(compare); COUNTED(length);

TRACED size_t length(const char *of) {
    HIT(length), HIT(strlen), HIT(abs);
    return strlen(of) + (size_t)abs(-3);
}
TRACED int upper(int c) {
    HIT(toupper);
    return toupper(c);
}
TRACED int compare(const void *a, const void *b) {
    HIT(compare);
    return *(const int *)a - *(const int *)b;
}
TRACED long sorted(void) {
    int numbers[8] = {5, 3, 8, 1, 9, 2, 7, 4};
    HIT(qsort);
    qsort(numbers, 8, sizeof *numbers, compare);
    return numbers[0] * 10 + numbers[7];
}
static jmp_buf place;
TRACED void leave(void) {
    HIT(longjmp);
    longjmp(place, 7);
}
TRACED long jumps(void) {
    HIT(_setjmp);
    int came = setjmp(place);
    if (came == 0) leave();
    return came;
}
TRACED double angle(double x) {
    HIT(cos);
    return cos(x) + x * x;
}
static void *work(void *argument) {
    double sum = 0;
    for (long n = 0; n < 1000; n++) sum += angle(n * 0.001) + (double)length(argument) + upper('a' + n % 26);
    HIT(malloc);
    double *result = malloc(sizeof *result);
    *result = sum;
    return result;
}
static double take(double *result) {
    double sum = *result;
    HIT(free);
    free(result);
    return sum;
}
int main(int argc, char **argv) {
    double sum = take(work("some text"));
    for (int n = 0; n < 100; n++) sum += (double)(sorted() + jumps());
    for (int n = 1; n < argc; n++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, work, argv[n]);
        pthread_join(thread, &result);
        sum += take(result);
    }
    SHOW(strlen), SHOW(abs), SHOW(toupper), SHOW(qsort), SHOW(_setjmp), SHOW(longjmp), SHOW(cos);
    SHOW(malloc), SHOW(free), SHOW(length);
    SHOW_ABOUT(compare);
    printf("sum %.3f with %d words, the first %s\n", sum, argc - 1, argc > 1 ? argv[1] : "none");
    return 0;
}
