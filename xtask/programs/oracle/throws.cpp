// Exceptions in 8 threads: caught at once, through frames with destructors, rethrown, from a constructor, by std::function.
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline))

struct Guard {
    long &count;
    NOINLINE explicit Guard(long &c) : count(c) { count += 1; }
    NOINLINE ~Guard() { count += 2; }
};

struct Shape {
    virtual ~Shape() = default;
    virtual long area() const = 0;
};
struct Square : Shape {
    long side;
    NOINLINE explicit Square(long s) : side(s) {
        if (s % 5 == 0)
            throw std::invalid_argument("side " + std::to_string(s));
    }
    NOINLINE ~Square() override { asm volatile(""); }
    NOINLINE long area() const override { return side * side; }
};

NOINLINE long down(long depth, long n, long &count) {
    Guard guard(count);
    if (depth == 0) {
        if (n % 3 == 0)
            throw std::runtime_error("bottom");
        if (n % 3 == 1)
            throw n;
        return n;
    }
    return down(depth - 1, n, count) + 1;
}

NOINLINE long rethrow(long n, long &count) {
    try {
        return down(n % 20, n, count);
    } catch (const std::exception &error) {
        count += error.what()[0];
        throw;
    }
}

NOINLINE long one(long n, long &count) {
    try {
        return rethrow(n, count);
    } catch (const std::runtime_error &) {
        return -1;
    } catch (long value) {
        return value * 2;
    }
}

NOINLINE long shapes(long n) {
    std::vector<std::unique_ptr<Shape>> all;
    long sum = 0;
    for (long i = 1; i <= n; i++) {
        try {
            all.push_back(std::make_unique<Square>(i));
        } catch (const std::invalid_argument &error) {
            sum += static_cast<long>(std::string(error.what()).size());
        }
    }
    for (const auto &shape : all)
        sum += shape->area();
    return sum;
}

NOINLINE void work(long id, long &result) {
    std::map<std::string, long> words;
    long count = 0;
    std::function<long(long)> call = [&count](long n) { return one(n, count); };
    for (long n = 0; n < 600; n++)
        words[std::to_string(n % 37)] += call(n + id);
    for (const auto &word : words)
        result += word.second * static_cast<long>(word.first.size());
    result += count + shapes(50);
}

int main() {
    std::vector<long> results(8);
    std::vector<std::thread> threads;
    for (long id = 0; id < 8; id++)
        threads.emplace_back(work, id, std::ref(results[static_cast<size_t>(id)]));
    for (auto &thread : threads)
        thread.join();
    for (long result : results)
        printf("%ld\n", result);
}
