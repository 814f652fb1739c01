// A function without a call.
#include "e2e.h"

TRACED int uncalled(int n) { KEEP(&n); return n + 1; }

int main(void) { return 0; }
