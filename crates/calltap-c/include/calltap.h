/* calltap: ftrace for user space, from inside a program.
 *
 * Build the program with -fpatchable-function-entry=5 and link it with libcalltap_c.a (and -lpthread -ldl -lm where they are
 * libraries of their own):
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
 *     -ENOSYS    no membarrier, or no XSAVE; or returns cannot be watched (docs/library.md)
 *     others     /proc/self/mem cannot be opened or written
 *
 * What a callback may do, and what must not leave it (longjmp, exceptions, pthread_exit), is written down in docs/library.md.
 */
#ifndef CALLTAP_H
#define CALLTAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CALLTAP_MAX_OPS 32

/* Where in its function a call was caught. */
#define CALLTAP_ENTRY 0          /* at its very beginning: all of struct calltap_regs is valid */
#define CALLTAP_AFTER_PROLOGUE 1 /* -pg without -mfentry: arguments may have moved */
#define CALLTAP_BODY 2           /* Rust's #[traced]: parent_ip and sp are 0, arguments may have moved */

struct calltap_regs {
	uint64_t kind;      /* CALLTAP_ENTRY ... */
	uint64_t ip;        /* the call in the function's entry */
	uint64_t parent_ip; /* where the function will return to */
	uint64_t sp;        /* at its entry: the return address is here, stack arguments follow */
	uint64_t mask;      /* of all ops that are interested in this function */
	uint64_t rdi, rsi, rdx, rcx, r8, r9;
};

struct calltap_ops;
typedef void (*calltap_func_t)(uint64_t ip, uint64_t parent_ip, struct calltap_ops *ops, const struct calltap_regs *regs);

/* A return: the ip that the entry had, how long the call took in nanoseconds, and rax: the result, if it is an integer or a pointer. */
typedef void (*calltap_return_t)(uint64_t ip, uint64_t nanoseconds, uint64_t result, struct calltap_ops *ops);

#define CALLTAP_MAY_MATCH_NOTHING 1 /* functions are meant that are not loaded yet */

struct calltap_ops {
	calltap_func_t func;
	const char *name;    /* or NULL */
	const char *filter;  /* globs, separated by white space; NULL or empty: all functions. Read when the ops are registered. */
	const char *notrace; /* globs, separated by white space; NULL or empty: none */
	calltap_return_t on_return; /* or NULL: for each call that func was told of, when it returns to its caller */
	uint32_t flags;
	void *data;          /* the program's own */
	/* Set while they are registered: */
	uint64_t id;         /* no other ops get it */
	uint32_t mask;       /* their bit in calltap_regs.mask */
	void *registration;
};

/* Finds what can be traced; gcc's sites of five instructions are made ready, if there is a single thread only. */
int calltap_init(void);

/* Turns ops on. They must stay where they are, and unchanged but for `data`, until they are unregistered. */
int calltap_register_function(struct calltap_ops *ops);

/* Turns them off. When this returns, the callback does not run, and will not. */
int calltap_unregister_function(struct calltap_ops *ops);

/* Other functions, while they are on. (A name with blanks in it, as C++ has them, is written with ? in their place.) */
int calltap_set_filter(struct calltap_ops *ops, const char *globs);
int calltap_set_notrace(struct calltap_ops *ops, const char *globs);

/* How many functions are on for these ops. */
int calltap_count_functions(const struct calltap_ops *ops);

/* Looks for shared objects that were loaded or unloaded since. (Registering does so, too.) */
int calltap_rescan(void);

/* The name of the function of a callback's ip, and of its module: as much as there is room for, with a zero at the end.
 * Returns the length that all of it has; 0 if nothing is known. May be called in callbacks. */
size_t calltap_function_name(uint64_t ip, char *buffer, size_t size);
size_t calltap_module_name(uint64_t ip, char *buffer, size_t size);

/* How many functions were refused; calls `each`, if it is not NULL, with the name of each and the reason. */
int calltap_failures(void (*each)(const char *function, const char *reason, void *data), void *data);

/* Calls that were not reported, as they were made inside a callback or by this library. */
uint64_t calltap_recursions(void);

/* Calls of which no return is reported, as they run on stacks that are not where the kernel puts stacks. */
uint64_t calltap_unseen_returns(void);

#ifdef __cplusplus
}
#endif
#endif
