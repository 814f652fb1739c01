//! Members of global objects: compiled programs print the positions of members, and the names that
//! their sources give them.

use crate::support::{build, have};
use calltap_sites::Svma;
use calltap_sites::types::Types;
use std::fs::File;
use std::process::Command;

/// `MEMBER(object, suffix, name)` prints the object's address, the member's offset, and the
/// expected name.
const SOURCE: &str = r#"
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#define NAMED(object, suffix, name) printf("%lu %lu %s\n", (unsigned long)&object, (unsigned long)((char *)&object suffix - (char *)&object), name)
#define MEMBER(object, suffix) NAMED(object, suffix, #suffix)
struct entry { int key; pthread_mutex_t lock; };
typedef const struct { char tag; struct entry entry; } named_entry;
struct cache {
    long hits;
    struct { int number; pthread_mutex_t inner; };
    struct entry table[4];
    int grid[2][3];
    union { int number_too; sem_t ready; };
    union { long word; struct entry entry; } one;
    unsigned bits : 3;
    pthread_cond_t filled;
    struct cache *next;
    named_entry last;
} cache;
static struct entry entries[3];
pthread_mutex_t mutex;
int main(void) {
    MEMBER(cache, .hits);
    MEMBER(cache, .number);
    MEMBER(cache, .inner);
    NAMED(cache, .inner.__data.__owner, ".inner");
    MEMBER(cache, .table[0].key);
    MEMBER(cache, .table[3].lock);
    NAMED(cache, .grid[1][2], "?");
    NAMED(cache, .ready, ".number_too|ready");
    NAMED(cache, .one.entry.key, ".one.word|entry");
    NAMED(cache, .one.entry.lock, ".one.entry.lock");
    NAMED(cache, .filled.__data.__g_signals[1], ".filled");
    MEMBER(cache, .next);
    MEMBER(cache, .last.tag);
    MEMBER(cache, .last.entry.lock);
    MEMBER(entries, [2].lock);
    NAMED(mutex, .__data.__count, "");
    return 0;
}
"#;

const CXX: &str = r#"
#include <condition_variable>
#include <cstdio>
#include <mutex>
struct Base { int first; std::mutex lock; virtual ~Base() {} };
template <typename T> struct Pool : Base { T *items; std::condition_variable filled; static Pool shared; };
template <> Pool<int> Pool<int>::shared{};
namespace app { static Pool<char> pool; }
#define MEMBER(object, suffix) printf("%lu %lu %s\n", (unsigned long)&object, (unsigned long)((char *)&object suffix - (char *)&object), #suffix)
int main() {
    MEMBER(Pool<int>::shared, .lock);
    MEMBER(Pool<int>::shared, .filled);
    MEMBER(app::pool, .first);
    MEMBER(app::pool, .items);
    MEMBER(app::pool, .filled);
}
"#;

fn check(command: &str, suffix: &str, source: &str) {
    let built = build(command, suffix, source);
    let types = Types::read(&File::open(&built.path).unwrap()).unwrap().expect("debugging information");
    let output = Command::new(&built.path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in text.lines() {
        let [object, offset, expected] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let (object, offset) = (Svma(object.parse().unwrap()), offset.parse().unwrap());
        let found = types.member_suffix(object, offset);
        assert_eq!(found.as_deref().unwrap_or("?"), expected, "{command}: offset {offset}");
        assert_eq!(
            types.member_suffix(Svma(object.0 + 1), offset),
            None,
            "{command}: no object begins there"
        );
        assert_eq!(types.member_suffix(object, 1 << 40), None, "{command}: behind the object");
    }
    assert!(text.lines().count() > 4, "{command}: {text}");
}

#[test]
fn members_are_named_as_in_the_source() {
    for (c, cxx) in [("gcc", "g++"), ("clang-16", "clang++-16")].into_iter().filter(|(c, _)| have(c)) {
        for version in [4, 5] {
            let flags = format!("-O1 -no-pie -gdwarf-{version}");
            check(&format!("{c} {flags}"), "c", SOURCE);
            // clang leaves types to the library that has their constructors, if not told otherwise.
            let whole = if cxx == "g++" { "" } else { "-fstandalone-debug" };
            check(&format!("{cxx} {flags} {whole}"), "cc", CXX);
        }
    }
}
