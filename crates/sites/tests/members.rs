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
#include <array>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <tuple>
struct Base { int first; std::mutex lock; virtual ~Base() {} };
template <typename T> struct Pool : Base { T *items; std::condition_variable filled; static Pool shared; };
template <> Pool<int> Pool<int>::shared{};
namespace app { static Pool<char> pool; }
struct Entry { int key; std::mutex lock; };
static std::array<Entry, 3> entries;
static std::array<std::mutex, 4> shards;
static std::tuple<std::mutex, Entry, std::mutex> all;
static std::pair<int, std::mutex> pair;
static std::optional<Entry> maybe;
#define MEMBER(object, suffix) printf("%lu %lu %s\n", (unsigned long)&object, (unsigned long)((char *)&object suffix - (char *)&object), #suffix)
// A member whose object has no name is at an offset of the object around it.
#define PLACED(object, member, suffix) do { \
    unsigned long at = (char *)member - (char *)&object; \
    unsigned long part = at - (*suffix ? offsetof(Entry, lock) : 0); \
    char place[32] = ""; \
    if (part > 0) sprintf(place, "+%lu", part); \
    printf("%lu %lu %s%s\n", (unsigned long)&object, at, place, suffix); \
} while (0)
int main() {
    MEMBER(Pool<int>::shared, .lock);
    MEMBER(Pool<int>::shared, .filled);
    MEMBER(app::pool, .first);
    MEMBER(app::pool, .items);
    MEMBER(app::pool, .filled);
    MEMBER(entries, [2].lock);
    MEMBER(shards, [0]);
    MEMBER(shards, [3]);
    MEMBER(pair, .second);
    maybe.emplace();
    PLACED(maybe, &maybe->lock, ".lock");
    PLACED(all, &std::get<0>(all), "");
    PLACED(all, &std::get<1>(all).lock, ".lock");
    PLACED(all, &std::get<2>(all), "");
}
"#;

const RUST: &str = r#"
use std::sync::{LazyLock, Mutex, OnceLock};
struct State { hits: u64, first: Mutex<u8>, second: Mutex<u8> }
static ONCE: OnceLock<State> = OnceLock::new();
static LAZY: LazyLock<[Mutex<u32>; 4]> = LazyLock::new(Default::default);
static TUPLE: (Mutex<u8>, u64, Mutex<u8>) = (Mutex::new(0), 1, Mutex::new(2));
struct Data { hits: u64, lock: Mutex<u8> }
static DATA: Data = Data { hits: 1, lock: Mutex::new(2) };
static OUTER: Mutex<State> = Mutex::new(State { hits: 0, first: Mutex::new(1), second: Mutex::new(2) });
fn show<T, M>(object: &'static T, member: &M, name: &str) {
    let (object, member) = (std::ptr::from_ref(object) as usize, std::ptr::from_ref(member) as usize);
    println!("{} {} {name}", object, member - object);
}
fn main() {
    let state = ONCE.get_or_init(|| State { hits: 1, first: Mutex::new(1), second: Mutex::new(2) });
    show(&ONCE, &state.hits, ".hits");
    show(&ONCE, &state.first, ".first");
    show(&ONCE, &state.second, ".second");
    show(&LAZY, &LAZY[0], "[0]");
    show(&LAZY, &LAZY[3], "[3]");
    show(&TUPLE, &TUPLE.0, ".0");
    show(&TUPLE, &TUPLE.2, ".2");
    show(&DATA, &DATA.hits, ".hits");
    show(&DATA, &DATA.lock, ".lock");
    let outer = OUTER.lock().unwrap();
    show(&OUTER, &outer.second, ".second");
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
        let found = types.member_suffix(object, offset).map(|(suffix, _)| suffix);
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
            check(&format!("{cxx} {flags} -std=c++17 {whole}"), "cc", CXX);
        }
    }
    check("rustc -g -O -C relocation-model=static", "rs", RUST);
}
