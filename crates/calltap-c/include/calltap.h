/* calltap: ftrace for user space, from inside a program.
 *
 * Build the program with -fpatchable-function-entry=5 and link it with libcalltap_c.a, and with
 * -lpthread -ldl -lm where these are separate libraries:
 *
 *     static void count(uint64_t ip, uint64_t parent_ip, struct calltap_ops *ops, const struct calltap_regs *regs) { ... }
 *     static struct calltap_ops ops = { .func = count, .name = "count", .filter = "net_* db_*" };
 *
 *     int main(void) {
 *         calltap_init();                        // before other threads: see below
 *         calltap_register_function(&ops);
 *         ...
 *         calltap_unregister_function(&ops);     // from here on count() does not run
 *
 * Functions return 0, or a negative error number:
 *
 *     -EDEADLK   called from inside a callback, which would have to wait for itself
 *     -ENOSPC    CALLTAP_MAX_OPS are registered already
 *     -EBUSY     these ops are registered already; or the process was forked by a callback in the middle of a change
 *     -EINVAL    no function, or ops that are not registered
 *     -ENOENT    no function that can be traced matches the filter (CALLTAP_MAY_MATCH_NOTHING: not an error)
 *     -ENOSYS    no membarrier, or no XSAVE; or returns cannot be watched (docs/guides/library.md)
 *     others     /proc/self/mem cannot be opened or written
 *
 * docs/guides/library.md says what a callback may do, and what must not leave it (longjmp, exceptions,
 * pthread_exit).
 */
#ifndef CALLTAP_H
#define CALLTAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CALLTAP_MAX_OPS 32

/* The place of the site in its function. */
#define CALLTAP_ENTRY 0          /* at its very beginning: all of struct calltap_regs is valid */
#define CALLTAP_AFTER_PROLOGUE 1 /* -pg without -mfentry: arguments may have moved */
#define CALLTAP_BODY 2           /* Rust's #[traced]: parent_ip and sp are 0, arguments may have moved */

struct calltap_regs {
	uint64_t kind;      /* CALLTAP_ENTRY ... */
	uint64_t ip;        /* address of the site in the function's entry */
	uint64_t parent_ip; /* the function's return address */
	uint64_t sp;        /* stack pointer at the entry: the return address lies there, stack arguments follow */
	uint64_t mask;      /* bits of all ops that are interested in this function */
	uint64_t rdi, rsi, rdx, rcx, r8, r9;
};

struct calltap_ops;
typedef void (*calltap_func_t)(uint64_t ip, uint64_t parent_ip, struct calltap_ops *ops, const struct calltap_regs *regs);

/* Called at a return, with the ip of the entry, the duration of the call in nanoseconds, and rax,
 * which holds the result if that is an integer or a pointer. */
typedef void (*calltap_return_t)(uint64_t ip, uint64_t nanoseconds, uint64_t result, struct calltap_ops *ops);

#define CALLTAP_MAY_MATCH_NOTHING 1 /* the functions may not be loaded yet */

struct calltap_ops {
	calltap_func_t func;
	const char *name;    /* or NULL */
	const char *filter;  /* globs, separated by white space; NULL or empty: all functions. Read when the ops are registered. */
	const char *notrace; /* globs, separated by white space; NULL or empty: none */
	calltap_return_t on_return; /* or NULL: called when a call returns to its caller that was reported to func */
	uint32_t flags;
	void *data;          /* the program's own */
	/* Set while the ops are registered: */
	uint64_t id;         /* unique number */
	uint32_t mask;       /* their bit in calltap_regs.mask */
	void *registration;
};

/* Finds the functions that can be traced. If the program has a single thread, gcc's sites of five
 * instructions become usable. */
int calltap_init(void);

/* Registers ops. They must stay at their address, and unchanged except for `data`, until they are
 * unregistered. */
int calltap_register_function(struct calltap_ops *ops);

/* Unregisters ops. When this returns, the callback does not run, and will not run again. */
int calltap_unregister_function(struct calltap_ops *ops);

/* Replaces the globs of registered ops. Write ? for a blank in a name, as C++ has them. */
int calltap_set_filter(struct calltap_ops *ops, const char *globs);
int calltap_set_notrace(struct calltap_ops *ops, const char *globs);

/* Returns how many functions are enabled for these ops. */
int calltap_count_functions(const struct calltap_ops *ops);

/* Looks for shared objects that were loaded or unloaded since. Registering ops does so, too. */
int calltap_rescan(void);

/* Writes the name of the function of a callback's ip, or of its module: as much as fits, with a zero
 * at the end. Returns the length of the whole name; 0 if it is not known. May be called in callbacks. */
size_t calltap_function_name(uint64_t ip, char *buffer, size_t size);
size_t calltap_module_name(uint64_t ip, char *buffer, size_t size);

/* Returns how many functions were refused; calls `each`, if it is not NULL, with the name of each and
 * the reason. */
int calltap_failures(void (*each)(const char *function, const char *reason, void *data), void *data);

/* Returns the number of calls that were not reported, as they were made inside a callback or by this
 * library. */
uint64_t calltap_recursions(void);

/* Returns the number of calls whose return was not reported, as their stacks are not where the kernel
 * puts stacks. */
uint64_t calltap_unseen_returns(void);

#ifdef __cplusplus
}
#endif
#endif
