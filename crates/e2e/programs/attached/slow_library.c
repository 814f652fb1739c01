// A library whose constructor sleeps.
#include <time.h>
__attribute__((constructor)) static void begin(void) { struct timespec t = {3, 0}; while (nanosleep(&t, &t)) {} }
