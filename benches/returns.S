# A profiling function that only returns, and no profiler: what a call at every function's entry costs.
        .text
        .globl  mcount, _mcount, __fentry__, __monstartup, _mcleanup
        .type   __fentry__, @function
        .type   mcount, @function
__fentry__:
        ret
mcount:
_mcount:
__monstartup:
_mcleanup:
        ret
        .section .note.GNU-stack,"",@progbits
