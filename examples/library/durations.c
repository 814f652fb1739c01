/* A C program that measures its own functions: calls, and the longest of each.
 *
 *     cargo build --release -p calltap-c
 *     gcc -O2 -fpatchable-function-entry=5 -Icrates/calltap-c/include examples/library/durations.c target/release/libcalltap_c.a -lpthread -ldl -lm
 */
#include "calltap.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NOT_TRACED __attribute__((patchable_function_entry(0), no_instrument_function))

__attribute__((noipa)) int parse(const char *text) {
	int all = 0;
	for (; *text; text++) all = all * 10 + (*text - '0');
	return all;
}

__attribute__((noipa)) int handle(const char *text, int milliseconds) {
	struct timespec time = {.tv_nsec = milliseconds * 1000000L};
	nanosleep(&time, NULL);
	return parse(text) + 1;
}

struct row { char name[32]; int calls; uint64_t longest, result; };
static struct row rows[8];

NOT_TRACED static struct row *row_of(uint64_t ip) {
	char name[32];
	calltap_function_name(ip, name, sizeof name);
	for (int i = 0; i < 8; i++) {
		if (!rows[i].name[0]) strcpy(rows[i].name, name);
		if (!strcmp(rows[i].name, name)) return &rows[i];
	}
	return &rows[7];
}

NOT_TRACED static void entered(uint64_t ip, uint64_t parent_ip, struct calltap_ops *ops, const struct calltap_regs *regs) {
	(void)parent_ip, (void)ops, (void)regs;
	row_of(ip)->calls++;
}

NOT_TRACED static void returned(uint64_t ip, uint64_t nanoseconds, uint64_t result, struct calltap_ops *ops) {
	(void)ops;
	struct row *row = row_of(ip);
	if (nanoseconds > row->longest) row->longest = nanoseconds;
	row->result = result;
}

NOT_TRACED int main(void) {
	calltap_init(); /* before other threads are started */
	struct calltap_ops ops = {.func = entered, .on_return = returned, .name = "durations", .filter = "parse handle"};
	int error = calltap_register_function(&ops);
	if (error) {
		fprintf(stderr, "calltap: %s\n", strerror(-error));
		return 1;
	}
	handle("41", 1);
	handle("1", 10);
	calltap_unregister_function(&ops);
	for (int i = 0; i < 8 && rows[i].name[0]; i++)
		printf("%s: %d calls, last result %d, longest %s\n", rows[i].name, rows[i].calls, (int)rows[i].result,
		       rows[i].longest >= 10000000 ? "at least 10 ms" : "less than 10 ms");
}
