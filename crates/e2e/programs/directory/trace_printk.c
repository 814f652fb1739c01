// A module of the kernel's samples, for the kernel's own tests of ftrace; here it is a shared
// object.
static volatile long calls;
__attribute__((noinline)) void trace_printk_irq_work(void) { calls++; }
