// A C++ program that measures its own methods; an exception leaves one of them.
//
//     g++ -O2 -fpatchable-function-entry=5 -Icrates/calltap-c/include examples/library/durations.cpp target/release/libcalltap_c.a -lpthread -ldl -lm
#include "calltap.h"
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#define NOT_TRACED __attribute__((patchable_function_entry(0), no_instrument_function))

struct Store {
	std::vector<int> all;
	__attribute__((noipa)) size_t put(int value) {
		if (value < 0) throw std::invalid_argument("negative");
		all.push_back(value);
		return all.size();
	}
	__attribute__((noipa)) size_t put_all(const std::vector<int> &values) {
		size_t size = 0;
		for (int value : values) size = put(value);
		return size;
	}
};

static int entries, returns;
static std::string last;

NOT_TRACED static void entered(uint64_t, uint64_t, calltap_ops *, const calltap_regs *) { entries++; }

NOT_TRACED static void returned(uint64_t ip, uint64_t, uint64_t result, calltap_ops *) {
	char name[128];
	calltap_function_name(ip, name, sizeof name);
	last = std::string(name) + " = " + std::to_string(result);
	returns++;
}

NOT_TRACED int main() {
	calltap_init(); // before other threads are started
	calltap_ops ops = {};
	ops.func = entered;
	ops.on_return = returned;
	ops.filter = "Store::put*";
	if (int error = calltap_register_function(&ops)) {
		fprintf(stderr, "calltap: %s\n", strerror(-error));
		return 1;
	}
	Store store;
	store.put_all({1, 2, 3});
	printf("%d entries, %d returns, last %s\n", entries, returns, last.c_str());
	try {
		store.put_all({4, -1});
	} catch (const std::invalid_argument &error) {
		printf("%s: %d entries, %d returns\n", error.what(), entries, returns);
	}
	calltap_unregister_function(&ops);
}
