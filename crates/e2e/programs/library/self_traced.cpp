// A C++ program that traces itself: exceptions pass through traced functions.
#include "calltap.h"
#include "e2e.h"
#include <stdexcept>
#include <string>
#include <vector>

namespace shapes {
struct Shape {
    virtual ~Shape() = default;
    TRACED virtual int area(int a) const { if (a < 0) throw std::runtime_error("negative"); return a * a; }
};
template <typename T> TRACED T biggest(const std::vector<T> &all) { T best{}; for (const T &one : all) if (best < one) best = one; return best; }
}

static std::vector<std::string> seen;
UNTRACED static void note(uint64_t ip, uint64_t, struct calltap_ops *, const struct calltap_regs *) {
    char name[256];
    calltap_function_name(ip, name, sizeof name);
    seen.emplace_back(name);
}

UNTRACED int main() {
    if (calltap_init()) return 2;
    struct calltap_ops ops = {};
    ops.func = note;
    ops.filter = "shapes::Shape::area* *biggest<int>*";
    if (calltap_register_function(&ops)) return 3;
    shapes::Shape shape;
    const shapes::Shape &base = shape;
    int sum = base.area(3) + shapes::biggest(std::vector<int>{1, 7, 2});
    if (shapes::biggest(std::vector<double>{0.5, 1.5}) != 1.5) return 4;
    try { base.area(-1); } catch (const std::runtime_error &error) { sum += (int)std::string(error.what()).size(); }
    if (calltap_unregister_function(&ops)) return 5;
    base.area(2);
    for (const std::string &name : seen) printf("%s\n", name.c_str());
    printf("%d\n", sum);
}
