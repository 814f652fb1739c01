// Functions of templates, with names of some hundred characters. Prints a sum.
#include <cstdio>
#include <map>
#include <string>
#include <vector>
#define KEEP __attribute__((noinline, noclone))
using Lists = std::map<std::string, std::vector<std::map<std::string, std::vector<int>>>>;
namespace store {
template <class T> KEEP long gather(const T& all, int n) { asm volatile(""); return long(all.size()) + n; }
template <class K, class V> KEEP long visit(const std::map<K, V>& all) { asm volatile(""); return long(all.size()); }
}
int main() {
    Lists lists;
    std::map<int, std::vector<std::string>> texts;
    lists["a"].resize(2);
    texts[1] = {"b"};
    long sum = 0;
    for (int n = 0; n < 20; n++) sum += store::gather(lists, n) + store::visit(lists) + store::visit(texts);
    printf("%ld\n", sum);
}
