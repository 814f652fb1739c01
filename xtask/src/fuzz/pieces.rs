//! Pieces of generated programs: each is some functions and an expression that runs them. The
//! functions of piece N have names `pN_...`.

use super::builds::Language;
use super::random::Random;
use super::{go, rust};
use std::fmt::Write as _;

/// A piece: its kind, and the seed of its code.
#[derive(Clone, Debug)]
pub struct Piece {
    kind: Kind,
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// `goto *p` over labels kept in a leaf's red zone.
    Labels,
    /// `goto *(&&base + differences[i])`.
    Differences,
    /// A switch with holes, whose cases return, fall through or loop.
    Switch,
    /// A leaf with an array in its red zone and a path that is rarely taken.
    Rare,
    /// Tail calls: direct, through pointers and tables, mutual.
    Tails,
    /// Functions of a few bytes.
    Tiny,
    /// Loops at the beginning of functions.
    Loops,
    /// Recursion with arguments on the stack and in vector registers.
    Recursion,
    /// `longjmp` over some frames.
    Longjmp,
    /// `longjmp` to one of two frames: out of frames of any size, from handlers, and from functions
    /// that the C library calls.
    Leaves,
    /// A signal handler that calls functions.
    Signals,
    /// Functions called by the C library.
    Callbacks,
    /// Two threads.
    Threads,
    /// A library that is opened and closed.
    Library,
    /// Exceptions through frames with destructors.
    Exceptions,
    /// Exceptions that are caught, thrown again, and thrown while others are being handled.
    Rethrown,
    /// Assembly: jumps with displacements of 8 or 16 bits, also to the bytes right behind the
    /// function's beginning.
    Narrow,
    /// Rust or Go: this text, with computations and numbers put in.
    Text(&'static str),
}

const KINDS: [Kind; 15] = [
    Kind::Labels,
    Kind::Differences,
    Kind::Switch,
    Kind::Switch,
    Kind::Rare,
    Kind::Tails,
    Kind::Tiny,
    Kind::Loops,
    Kind::Recursion,
    Kind::Longjmp,
    Kind::Leaves,
    Kind::Signals,
    Kind::Callbacks,
    Kind::Library,
    Kind::Narrow,
];

const HEAD: &str = "\
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#define FUNCTION __attribute__((noinline))
typedef unsigned long word;
static volatile word sink;
";

/// Returns the source of a program.
pub fn program(language: Language, pieces: &[Piece]) -> String {
    let named = |(n, piece): (usize, &Piece)| piece.code(&format!("p{n}"));
    let code: String = pieces.iter().enumerate().map(named).collect();
    let calls = |line: &str| -> String {
        let call = |(n, piece): (usize, &Piece)| {
            line.replace('@', &format!("p{n}")).replace("NUMBER", &(piece.seed % 5).to_string())
        };
        pieces.iter().enumerate().map(call).collect()
    };
    match language {
        Language::Rust => rust::program(&code, &calls("        sum = sum * 31 + @_run(round + NUMBER);\n")),
        Language::Go => go::program(&code, &calls("\t\tsum = sum*31 + @_run(round+NUMBER)\n")),
        Language::C | Language::Cpp => {
            let calls = calls("        sum = sum * 31 + @_run(round + NUMBER);\n");
            format!(
                "{HEAD}{code}int main(int count, char **words)\n{{\n    word sum = 0, rounds = count > 1 ? strtoul(words[1], 0, 10) : 1;\n    \
                 for (word round = 0; round < rounds; round++) {{\n{calls}        if (rounds < 100) printf(\"%lu\\n\", sum);\n    }}\n    \
                 printf(\"%lu\\n\", sum);\n    return (int)(sum % 7);\n}}\n"
            )
        }
    }
}

impl Piece {
    /// Draws a piece that the language has.
    pub fn choose(random: &mut Random, language: Language) -> Piece {
        let kind = match (language, random.below(20)) {
            (Language::Rust, _) => Kind::Text(random.one(&rust::PIECES)),
            (Language::Go, _) => Kind::Text(random.one(&go::PIECES)),
            (_, 0) => Kind::Threads,
            (Language::Cpp, 1..=2) => Kind::Exceptions,
            (Language::Cpp, 3..=4) => Kind::Rethrown,
            _ => random.one(&KINDS),
        };
        Piece { kind, seed: random.next() }
    }

    /// Whether the piece has differences of labels.
    pub fn has_differences(&self) -> bool {
        self.kind == Kind::Differences
    }

    /// Whether the piece opens a library.
    pub fn opens_libraries(&self) -> bool {
        self.kind == Kind::Library
    }

    fn code(&self, name: &str) -> String {
        let random = &mut Random::new(self.seed);
        let text = match self.kind {
            Kind::Labels => labels(random),
            Kind::Differences => differences(random),
            Kind::Switch => switch(random),
            Kind::Rare => rare(random),
            Kind::Tails => tails(random),
            Kind::Tiny => tiny(random),
            Kind::Loops => loops(random),
            Kind::Recursion => recursion(random),
            Kind::Longjmp => LONGJMP.to_owned(),
            Kind::Leaves => leaves(random),
            Kind::Signals => SIGNALS.to_owned(),
            Kind::Callbacks => CALLBACKS.to_owned(),
            Kind::Threads => THREADS.to_owned(),
            Kind::Library => LIBRARY.to_owned(),
            Kind::Exceptions => EXCEPTIONS.to_owned(),
            Kind::Rethrown => rethrown(random),
            Kind::Narrow => narrow(random),
            Kind::Text(text) => filled(random, text),
        };
        text.replace('@', name)
    }
}

/// Replaces each `STEPS` of a text by a computation, and each `NUMBER` by a number.
fn filled(random: &mut Random, text: &str) -> String {
    let mut words = text.split_inclusive(' ').map(|word| match word.trim_end() {
        "STEPS" => (0..=random.below(3)).map(|_| arithmetic(random) + " ").collect(),
        _ => word.replace("NUMBER", &(2 + random.below(40)).to_string()),
    });
    words.by_ref().collect()
}

/// Returns a short computation on `x` that is valid in all the languages.
fn arithmetic(random: &mut Random) -> String {
    let n = random.below(1 << 10);
    match random.below(4) {
        0 => format!("x += {n};"),
        1 => format!("x *= {};", n | 1),
        2 => format!("x ^= x >> {};", 1 + n % 31),
        _ => format!("x = x%{} + {n};", n + 7),
    }
}

/// Returns a short computation on `x` in C.
fn step(random: &mut Random) -> String {
    let n = random.below(1 << 10);
    match random.below(6) {
        0 => format!("x += {n};"),
        1 => format!("x *= {};", n | 1),
        2 => format!("x ^= x >> {};", 1 + n % 31),
        3 => format!("sink = x + {n};"),
        4 => format!("x -= sink & {n};"),
        _ => format!("x = x % {} + {n};", n + 7),
    }
}

fn steps(random: &mut Random, most: u64) -> String {
    (0..=random.below(most)).map(|_| step(random)).collect::<Vec<_>>().join(" ")
}

fn labels(random: &mut Random) -> String {
    let count = 2 + random.below(6);
    let table: String = (0..count).map(|n| format!("&&l{n}, ")).collect();
    let next = "goto **next++;";
    let blocks: String = (0..count).map(|n| format!("l{n}: {} {next}\n", steps(random, 3))).collect();
    let constant = random.one(&["const ", ""]);
    format!(
        "FUNCTION word @_run(word x) {{\nstatic void *{constant}table[] = {{{table}&&end}};\nvoid *code[9], **next = code; word w = x;\n\
         for (int i = 0; i < 8; i++, w = w * 5 + 1) code[i] = table[w % {count}];\ncode[8] = table[{count}];\n{next}\n{blocks}end: return x;\n}}\n"
    )
}

fn differences(random: &mut Random) -> String {
    let count = 2 + random.below(5);
    let kind = random.one(&["int", "int", "short", "long"]);
    let base = random.below(count);
    let table: String = (0..count).map(|n| format!("(char *)&&l{n} - (char *)&&l{base}, ")).collect();
    let next = format!("if (!left--) return x; goto *(void *)((char *)&&l{base} + table[x % {count}]);");
    let blocks: String = (0..count).map(|n| format!("l{n}: {} {next}\n", steps(random, 3))).collect();
    // In C++ and for clang these distances are not constants, and are computed at run time.
    format!(
        "#if defined(__cplusplus) || defined(__clang__)\n#define KEEP_@\n#else\n#define KEEP_@ static const\n#endif\n\
         FUNCTION word @_run(word x) {{\nint left = 9;\nKEEP_@ {kind} table[] = {{{table}}};\n{next}\n{blocks}}}\n"
    )
    .replace(&format!("{{{table}}}"), &narrowed(&table, kind))
}

/// Returns a table with explicit conversions: C++ does not narrow distances implicitly.
fn narrowed(table: &str, kind: &str) -> String {
    let entries = table.split(", ").filter(|entry| !entry.is_empty());
    format!("{{{}}}", entries.map(|entry| format!("({kind})({entry})")).collect::<Vec<_>>().join(", "))
}

fn narrow(random: &mut Random) -> String {
    let (entry, load, size) = random.one(&[
        (".byte", "movzbl (%r8,%rcx), %ecx", 1),
        (".byte", "movsbq (%r8,%rcx), %rcx", 1),
        (".short", "movzwl (%r8,%rcx,2), %ecx", 2),
        (".short", "movswq (%r8,%rcx,2), %rcx", 2),
    ]);
    let first = random.one(&["xor %eax, %eax", "mov $0, %eax", "xor %eax, %eax; nop"]);
    let section = random.one(&[".section .rodata", ".text"]);
    let table = format!("{entry} .L@_a - .L@_a, .L@_b - .L@_a, .L@_c - .L@_a, .L@_b - .L@_a");
    let blocks = "\".L@_a: lea 5(%rax), %rax; jmp .L@_n\\n\"\n\".L@_b: imul $3, %rax, %rax; mov %rax, -16(%rsp); add -16(%rsp), %rax; jmp .L@_n\\n\"\n\
         \".L@_c: lea 1(%rax,%rdi), %rax\\n\"\n\".L@_n: dec %esi; js .L@_e; mov %edi, %ecx; and $3, %ecx; shr $2, %rdi\\n\"";
    format!(
        "__asm__(\".text\\n.globl @_leaf\\n.type @_leaf, STT_FUNC\\n@_leaf: .cfi_startproc\\n{first}\\n\"\n{blocks}\n\
         \"lea .L@_t(%rip), %r8; lea .L@_a(%rip), %r9; {load}; add %r9, %rcx; jmp *%rcx\\n\"\n\
         \".L@_e: ret\\n.cfi_endproc\\n.size @_leaf, . - @_leaf\\n{section}\\n.balign {size}\\n.L@_t: {table}\\n.text\\n\");\n\
         #ifdef __cplusplus\nextern \"C\"\n#endif\nword @_leaf(word x, int n);\n\
         FUNCTION word @_run(word x) {{ word sum = 0; for (word i = 0; i < 9; i++) sum = sum * 7 + @_leaf(x * 2654435761UL + i * 77, (int)i % 7); return sum; }}\n"
    )
}

fn switch(random: &mut Random) -> String {
    let count = 4 + random.below(20);
    let holes = random.below(3);
    let mut cases = String::new();
    let mut known = Vec::new();
    for n in 0..count {
        if random.below(3) < holes && n > 0 {
            continue;
        }
        known.push(n.to_string());
        let end = match random.below(5) {
            0 => "/* falls through */".to_owned(),
            1 => format!("return x + {n};"),
            2 => "break;".to_owned(),
            3 => format!("if (__builtin_expect(x == {n}, 0)) {{ sink = x; abort(); }} return x ^ {n};"),
            _ => "if (left-- > 0) goto again; return x;".to_owned(),
        };
        let _ = writeln!(cases, "case {n}: {} {end}", steps(random, 3));
    }
    cases += "return x + 1;\n";
    let default = random.one(&["default: __builtin_unreachable();", "default: return 3;", "default: break;"]);
    let chosen = known.len();
    let table = known.join(", ");
    format!(
        "FUNCTION word @_leaf(word x, unsigned n) {{\nint left = 3;\nagain:\nswitch (n) {{\n{cases}{default}\n}}\nreturn x * 3;\n}}\n\
         FUNCTION word @_run(word x) {{\nstatic const unsigned known[] = {{{table}}}; word sum = 0;\n\
         for (unsigned i = 0; i < {chosen}; i++) sum = sum * 7 + @_leaf(x + i + 100, known[i]);\nreturn sum;\n}}\n"
    )
}

fn rare(random: &mut Random) -> String {
    let (size, when) = (4 + random.below(26), random.below(4));
    let call = random.one(&["@_cold(x);", "", "@_cold(x); @_cold(x + 1);"]);
    format!(
        "__attribute__((cold)) FUNCTION void @_cold(word x) {{ sink = x; }}\n\
         FUNCTION word @_leaf(word x) {{\nvolatile int t[{size}];\nfor (int i = 0; i < {size}; i++) t[i] = (int)(x + i);\n\
         if (__builtin_expect(x % 4 == {when}, 0)) {{ {call} word s = 0; for (int i = 0; i < {size}; i++) s = s * 3 + t[i]; return s; }}\n\
         return t[x % {size}];\n}}\n\
         FUNCTION word @_run(word x) {{ word sum = 0; for (word i = 0; i < 6; i++) sum = sum * 5 + @_leaf(x + i); return sum; }}\n"
    )
}

fn tails(random: &mut Random) -> String {
    let (a, b, c) = (steps(random, 3), steps(random, 2), steps(random, 2));
    format!(
        "FUNCTION word @_end(word x) {{ {a} return x; }}\nFUNCTION word @_other(word x) {{ {b} return x; }}\n\
         static word (*volatile @_table[])(word) = {{@_end, @_other}};\nFUNCTION word @_odd(word x, word n);\n\
         FUNCTION word @_even(word x, word n) {{ {c} return n ? @_odd(x, n - 1) : x; }}\n\
         FUNCTION word @_odd(word x, word n) {{ return n ? @_even(x + 1, n - 1) : ~x; }}\n\
         FUNCTION word @_direct(word x) {{ sink = x; return @_end(x + 1); }}\n\
         FUNCTION word @_through(word x) {{ sink = x; return @_table[x & 1](x); }}\n\
         FUNCTION word @_perhaps(word x) {{ if (x & 1) return @_other(x); if (x & 2) return @_end(x); return x * 3; }}\n\
         FUNCTION word @_run(word x) {{ return @_even(x, x % 9) ^ @_direct(x) ^ @_through(x) ^ @_through(x + 1) ^ @_perhaps(x) ^ @_perhaps(x + 1); }}\n"
    )
}

fn tiny(random: &mut Random) -> String {
    let n = random.below(200);
    format!(
        "FUNCTION void @_nothing(void) {{ __asm__ volatile(\"\"); }}\nFUNCTION word @_same(word x) {{ __asm__ volatile(\"\" : \"+r\"(x)); return x; }}\n\
         FUNCTION word @_more(word x) {{ __asm__ volatile(\"\" : \"+r\"(x)); return x + {n}; }}\nFUNCTION int @_zero(void) {{ __asm__ volatile(\"\"); return 0; }}\n\
         FUNCTION word @_if(word x) {{ return x > {n} ? sink : x; }}\n\
         FUNCTION word @_run(word x) {{ @_nothing(); return @_same(x) + @_more(x) + @_zero() + @_if(x); }}\n"
    )
}

fn loops(random: &mut Random) -> String {
    let body = steps(random, 3);
    format!(
        "FUNCTION word @_first(word x) {{ int left = 20; do {{ {body} }} while (--left && x % 3 && x++ % 7); return x; }}\n\
         FUNCTION word @_second(word *p, word n) {{ word s = 0; while (n--) s += *p++; return s; }}\n\
         FUNCTION void @_third(volatile word *p, word n) {{ do *p += n; while (--n); }}\n\
         FUNCTION word @_run(word x) {{ word t[4] = {{x, x + 1, x * 2, 3}}; @_third(&sink, x % 5 + 1); return @_first(x) + @_second(t, 4); }}\n"
    )
}

fn recursion(random: &mut Random) -> String {
    let (depth, body) = (3 + random.below(12), steps(random, 3));
    format!(
        "FUNCTION double @_deep(word x, double d, int a, int b, int c, int e, int f, int g) {{\n{body}\n\
         if (a == 0) return d + (double)(x % 100);\nreturn @_deep(x, d * 0.5, a - 1, b + g, c, e, f + 1, g) + (double)(b + f);\n}}\n\
         FUNCTION word @_run(word x) {{ return (word)@_deep(x % 50, 1.5, {depth}, 2, 3, 4, 5, 6); }}\n"
    )
}

fn leaves(random: &mut Random) -> String {
    let (size, less, step) = (1 + random.below(40), 1 + random.below(12), steps(random, 2));
    let way = random.one(&[
        "@_leave(n + i);",
        "word t[5] = {n, n + 1, 3, n / 2, 1}; qsort(t, 5, sizeof *t, @_order);",
        "signal(SIGUSR2, @_handle); raise(SIGUSR2);",
    ]);
    format!(
        "static sigjmp_buf @_outer, @_inner; static volatile word @_n;\n\
         FUNCTION word @_plain(word x) {{ {step} return x; }}\n\
         FUNCTION void @_leave(word n) {{ volatile char room[{size}]; room[n % {size}] = 1; @_plain(n);\n\
         switch (n % 4) {{ case 0: siglongjmp(@_inner, 1); case 1: siglongjmp(@_outer, 1); }} sink += (word)room[n % {size}]; }}\n\
         FUNCTION void @_handle(int signal) {{ sink += (word)signal; @_leave(@_n++); }}\n\
         FUNCTION int @_order(const void *a, const void *b) {{ @_leave(@_n++); return *(const word *)a < *(const word *)b ? -1 : 1; }}\n\
         FUNCTION word @_between(word n) {{ volatile word room[{less}]; for (word i = 0; i < {less}; i++) {{ room[i] = n; {way} }} return room[n % {less}]; }}\n\
         FUNCTION word @_middle(word n) {{ volatile word s = 1; if (sigsetjmp(@_inner, 1) == 0) s += @_between(n); else s += @_plain(n) + 7; return s + @_plain(s); }}\n\
         FUNCTION word @_run(word x) {{ volatile word s = 0, i; @_n = x; for (i = 0; i < 7; i++) {{ if (sigsetjmp(@_outer, 1) == 0) s += @_middle(x % 9 + i); else s += @_plain(i) * 3; }} return s; }}\n"
    )
}

fn rethrown(random: &mut Random) -> String {
    let [size, less] = [(); 2].map(|()| frame_size(random));
    let (when, step) = (2 + random.below(4), steps(random, 2));
    let run = random.one(&[
        "FUNCTION word @_run(word x) { return @_all(x); }\n",
        "FUNCTION void *@_thread(void *p) { return (void *)@_all((word)p); }\n\
         FUNCTION word @_run(word x) { pthread_t t; void *r; pthread_create(&t, 0, @_thread, (void *)x); pthread_join(t, &r); return (word)r; }\n",
    ]);
    let caught = random.one(&["throw;", "throw (long)x;", "s += @_plain(x);", "return @_plain(x) + 2;"]);
    format!(
        "FUNCTION word @_plain(word x) {{ {step} return x; }}\n\
         FUNCTION void @_fails(word x) {{ volatile char room[{size}]; room[x % {size}] = 1; if (x % {when} == 0) throw (int)(x % 50); if (x % {when} == 1) throw (long)x; sink += (word)room[x % {size}]; }}\n\
         struct @_undo {{ word x; ~@_undo() {{ sink += @_plain(x); try {{ @_fails(x + 1); }} catch (...) {{ sink++; }} }} }};\n\
         FUNCTION word @_pass(word x) {{ @_undo undo = {{x}}; word s = @_plain(x + 1); @_fails(x); return s; }}\n\
         FUNCTION word @_catches(word x) {{ volatile char room[{less}]; room[x % {less}] = 1; word s = 0; try {{ s += @_pass(x); }} catch (int e) {{ s += (word)e; {caught} }} return s + @_plain(s); }}\n\
         FUNCTION word @_all(word x) {{ word s = 0; for (word i = 0; i < 6; i++) try {{ s += @_catches(x + i); }} catch (long e) {{ s += (word)e + @_plain(i); }} catch (int e) {{ s += 5; }} return s; }}\n{run}"
    )
}

/// Returns the size of an array: mostly small, or larger than the distance of two frames that are
/// certainly on one stack.
fn frame_size(random: &mut Random) -> u64 {
    if random.below(4) == 0 { (260 + random.below(200)) << 10 } else { 1 + random.below(40) }
}

const LONGJMP: &str = "\
static jmp_buf @_back;
FUNCTION void @_deep(word n) { sink += n; if (n == 0) longjmp(@_back, 1); @_deep(n - 1); sink++; }
FUNCTION word @_after(word x) { return x + 5; }
FUNCTION word @_run(word x) { if (setjmp(@_back) == 0) @_deep(x % 6); return @_after(sink % 3); }
";

const SIGNALS: &str = "\
static volatile word @_seen;
FUNCTION void @_note(int signal) { @_seen += (word)signal; }
FUNCTION void @_handle(int signal) { @_note(signal); }
FUNCTION word @_run(word x) { signal(SIGUSR1, @_handle); raise(SIGUSR1); raise(SIGUSR1); return @_seen + x; }
";

const CALLBACKS: &str = "\
FUNCTION int @_order(const void *a, const void *b) { word x = *(const word *)a, y = *(const word *)b; return x < y ? -1 : x > y; }
FUNCTION word @_run(word x) { word t[9]; for (int i = 0; i < 9; i++) t[i] = (x + i) * 2654435761UL % 97; qsort(t, 9, sizeof *t, @_order); return t[4] * 100 + t[0]; }
";

const THREADS: &str = "\
FUNCTION word @_work(word x) { return x * 3 + 1; }
FUNCTION void *@_thread(void *p) { word s = (word)p; for (int i = 0; i < 9; i++) s = @_work(s); return (void *)s; }
FUNCTION word @_run(word x) { pthread_t t[2]; void *r[2]; for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, @_thread, (void *)(x + i)); \
for (int i = 0; i < 2; i++) pthread_join(t[i], &r[i]); return (word)r[0] ^ (word)r[1]; }
";

const LIBRARY: &str = "\
FUNCTION word @_run(word x) { void *m = dlopen(\"libm.so.6\", RTLD_NOW); double (*f)(double) = m ? (double (*)(double))dlsym(m, \"floor\") : 0; \
word r = f ? (word)f((double)(x % 9) + 0.5) : x % 9; if (m) dlclose(m); return r; }
";

const EXCEPTIONS: &str = "\
struct @_guard { ~@_guard() { sink++; } };
FUNCTION word @_throw(word x) { @_guard guard; if (x % 3 == 0) throw (int)(x % 100); return x + 1; }
FUNCTION word @_pass(word x) { @_guard guard; return @_throw(x) + 1; }
FUNCTION word @_run(word x) { word s = 0; for (word i = 0; i < 5; i++) try { s += @_pass(x + i); } catch (int e) { s += (word)e * 7; } return s + sink % 2; }
";
