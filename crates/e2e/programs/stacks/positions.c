/* Prints how many of its frames an unwinder sees whose canonical frame address no compiler makes. */
#include <stdint.h>
#include <stdio.h>
#include <unwind.h>

static int frames, odd;

static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *last) {
    (void)last;
    frames++;
    odd += _Unwind_GetCFA(context) % 8 != 0;
    return _URC_NO_REASON;
}

__attribute__((noinline)) static int inner(int n) { return _Unwind_Backtrace(look, 0) + n; }
__attribute__((noinline)) static int outer(int n) { return inner(n) * 2; }

int main(void) {
    outer(1);
    printf("%s, %d odd\n", frames > 3 ? "frames" : "no frames", odd);
}
