//! Everyday uses of more than sixty programs of a distribution: short scripts, with all functions
//! of the program traced.

pub use super::difference;
use super::{Suite, Test, wrap_one};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const SUITE: Suite = Suite {
    name: "everyday",
    needs: &[],
    commands,
    // `?*` also selects the functions that only a filter switches on.
    flags: "-F '?*'",
    tests: |_| Ok(uses(&[]).iter().map(Use::test).collect()),
    compared: |_| true,
};

/// Programs with the scripts that use them.
const USES: &[(&str, &str)] = &[
    (
        "awk",
        "$BIN/awk '{ s[$3] += $2; gsub(/o/, \"0\") } END { for (w in s) print w, s[w] | \"sort\" }' words.txt",
    ),
    (
        "bash",
        "$BIN/bash -c 'f() { local x=$1; echo ${x//1/one}; }; for i in {1..40}; do f $i; done; [[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}'",
    ),
    (
        "bc",
        "echo 'scale=30; define f(x) { if (x < 2) return 1; return x * f(x - 1) }; f(25); sqrt(2); e(1)' | $BIN/bc -l",
    ),
    ("brotli", "$BIN/brotli -c words.txt | $BIN/brotli -dc | cksum"),
    ("bzip2", "$BIN/bzip2 -k words.txt && $BIN/bzip2 -dc words.txt.bz2 | cksum"),
    ("clang-16", "$BIN/clang-16 -O2 -S -o - in.c | grep -c mov"),
    ("convert", "$BIN/convert in.ppm -resize 20x20 -blur 0x1 out.png && $BIN/convert out.png txt:- | cksum"),
    ("cpio", "find tree | sort | $BIN/cpio -o -H newc --reproducible 2>&1 >a.cpio; $BIN/cpio -t < a.cpio"),
    (
        "curl",
        "$BIN/curl -s file://$PWD/words.txt | cksum; $BIN/curl -sS http://127.0.0.1:1/ 2>&1 | sed 's/after [0-9]* ms//'",
    ),
    (
        "dash",
        "$BIN/dash -c 'i=0; while [ $i -lt 50 ]; do i=$((i + 1)); case $i in *7) echo $i;; esac; done; trap \"echo end\" EXIT'",
    ),
    ("dc", "$BIN/dc -e '40k 2v p 3 9^ p [la1+dsa*pla10>y]sy 0sa1 lyx'"),
    ("diff", "$BIN/diff -u words.txt other.txt | tail -n +3 | cksum; $BIN/diff -r tree tree"),
    (
        "dot",
        "echo 'digraph { a -> b -> c; a -> c [label=x]; subgraph cluster_0 { d; e } c -> d }' | $BIN/dot -Tplain",
    ),
    ("ffmpeg", "$BIN/ffmpeg -nostdin -v error -f lavfi -i testsrc=d=0.2:s=64x48 -threads 1 -f framemd5 -"),
    ("file", "$BIN/file in.c words.txt in.json in.xml in.ppm /bin/ls | cut -c1-60"),
    (
        "find",
        "$BIN/find tree -type f -newermt 2021-01-01 -printf '%P %s %m\\n' | sort; $BIN/find tree -name '*.[ch]' -exec wc -l {} +",
    ),
    ("flex", "printf '%%%%\\n[a-z]+ puts(yytext);\\n[0-9]+ ;\\n%%%%\\n' > l.l && $BIN/flex -t l.l | cksum"),
    (
        "gawk",
        "$BIN/gawk '{ a[NR] = strtonum(\"0x\" $1) } END { n = asort(a); print n, a[n], gensub(/(.)b/, \"\\\\1\", \"g\", \"abab\") }' words.txt",
    ),
    (
        "gcc",
        "$BIN/gcc -O2 in.c -o program && ./program; echo 'int f(int x) { }' > w.c; $BIN/gcc -c -Wall -Wextra w.c 2>&1",
    ),
    (
        "gdb",
        "gcc -g in.c -o program && $BIN/gdb -nx -batch -ex 'info line power' -ex 'ptype main' -ex 'p sizeof(int[3])' program",
    ),
    (
        "git",
        "$BIN/git init -q g && cd g && cp ../in.c . && $BIN/git add . && $BIN/git -c user.name=n -c user.email=e commit -qm one --date=2020-01-01T00:00:00 && echo >> in.c && $BIN/git diff --stat && $BIN/git log --format=%s && $BIN/git grep -n power",
    ),
    ("gpg", "$BIN/gpg --print-md sha256 words.txt; $BIN/gpg --list-packets in.c 2>&1 | tail -1"),
    (
        "grep",
        "$BIN/grep -nE '(word1|main2).*5' words.txt | cksum; $BIN/grep -Pc '\\d{3} w(?=ord)' words.txt; $BIN/grep -rl puts tree; $BIN/grep none words.txt",
    ),
    ("groff", "printf '.TH A 1\\n.SH NAME\\na \\\\- b\\n.B bold\\n' | $BIN/groff -man -Tascii"),
    ("gs", "echo '(a) = 1 1 100 { dup mul = } for' | $BIN/gs -q -dNODISPLAY -dBATCH -dNOPAUSE - | cksum"),
    ("gzip", "$BIN/gzip -9c words.txt | $BIN/gzip -dc | cksum; $BIN/gzip -l words.txt 2>&1"),
    (
        "jq",
        "$BIN/jq -c '[.[] | select(.n % 3 == 0) | {(.s): (.l | length)}] | group_by(keys) | map(add)' in.json",
    ),
    (
        "ld",
        "printf '.globl _start\\n_start: mov $60, %%eax; xor %%edi, %%edi; syscall\\n' | as -o s.o - && $BIN/ld s.o -o s --build-id=none && ./s; cksum < s",
    ),
    ("less", "$BIN/less -FX in.c | cksum"),
    ("ls", "$BIN/ls -lR --time-style=+%Y tree | grep -v '^total'; $BIN/ls /none 2>&1"),
    (
        "lua5.4",
        "$BIN/lua5.4 -e 'local t = {} for i = 1, 500 do t[i] = (i * 7919) % 501 end table.sort(t) print(t[1], t[500], (\"abc\"):rep(3, \"-\"):gsub(\"b\", \"B\")) print(pcall(error, \"x\")) local c = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end) print(c(), c())'",
    ),
    ("lz4", "$BIN/lz4 -qc words.txt | $BIN/lz4 -dqc | cksum"),
    (
        "m4",
        "printf 'changequote([, ])define([f], [ifelse($1, 0, done, [$1 f(decr($1))])])f(30) eval(7 ** 5) translit(abc, a-c, A-C)\\n' | $BIN/m4",
    ),
    (
        "make",
        "printf 'all: a b\\na b:\\n\\t@echo $@ $(words 1 2 3)\\nx = $(foreach i,1 2,<$i>)\\n$(info $(x) $(patsubst %%.c,%%.o,a.c))\\n' > Makefile && $BIN/make -j2 -O | sort",
    ),
    (
        "mawk",
        "$BIN/mawk '{ n += length($0); if (match($0, /word1[0-5]/)) m++ } END { print n, m, sprintf(\"%x\", n) }' words.txt",
    ),
    (
        "msgfmt",
        "printf 'msgid \"\"\\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\\\n\"\\nmsgid \"a\"\\nmsgstr \"b\"\\n' > a.po && $BIN/msgfmt -o a.mo a.po && cksum < a.mo",
    ),
    ("nano", "$BIN/nano --version | head -1"),
    (
        "nasm",
        "echo 'bits 64\\nmov rax, [rbx + 8]\\njmp $' > a.asm; $BIN/nasm -f bin -o a.bin a.asm && cksum < a.bin",
    ),
    (
        "node",
        "$BIN/node -e 'const a = Array.from({length: 500}, (_, i) => i * 7919 % 501).sort((x, y) => x - y); console.log(a[0], a[499], JSON.stringify({x: [1, \"y\"]}), /b(.)/.exec(\"abc\")[1]); setTimeout(() => console.log(\"late\"), 1)'",
    ),
    (
        "openssl",
        "$BIN/openssl dgst -sha256 words.txt; $BIN/openssl enc -aes-128-cbc -K 00112233445566778899aabbccddeeff -iv 00 -in words.txt 2>/dev/null | cksum; $BIN/openssl prime 1000003",
    ),
    (
        "optipng",
        "convert in.ppm a.png && $BIN/optipng -quiet -out b.png a.png && convert b.png ppm:- | cksum",
    ),
    (
        "patch",
        "diff -u words.txt other.txt > p; cp words.txt w; $BIN/patch w p && cmp w other.txt && echo same",
    ),
    ("pdftotext", "$BIN/pdftotext -v 2>&1 | head -1; printf 'broken' > a.pdf; $BIN/pdftotext a.pdf - 2>&1"),
    (
        "perl",
        "$BIN/perl -e 'my %h; $h{$_ % 17} .= $_ for 1 .. 500; print join(\",\", map { length $h{$_} } sort { $a <=> $b } keys %h), \"\\n\"; eval { die \"x\\n\" }; print $@; (my $s = \"a1b22\") =~ s/(\\d+)/<$1>/g; print \"$s\\n\"; print sprintf(\"%.3e\", 22 / 7), \"\\n\"'",
    ),
    (
        "php",
        "$BIN/php -r '$a = range(1, 300); usort($a, fn($x, $y) => $x % 7 <=> $y % 7 ?: $x <=> $y); echo implode(\",\", array_slice($a, 0, 9)), \"\\n\", json_encode([\"x\" => 1.5]), preg_replace(\"/b+/\", \"B\", \"abbc\"), \"\\n\"; try { intdiv(1, 0); } catch (Error $e) { echo get_class($e), \"\\n\"; }'",
    ),
    (
        "python3.11",
        "$BIN/python3.11 -S -c 'import json, re, zlib; d = json.load(open(\"in.json\")); print(sum(e[\"n\"] for e in d), len(re.findall(r\"\\d+\", open(\"words.txt\").read())), zlib.crc32(b\"abc\"), sorted({str(e[\"s\"]) for e in d}))\ntry: 1 / 0\nexcept ZeroDivisionError as e: print(e)'",
    ),
    (
        "redis-server",
        "$BIN/redis-server --version | cut -d' ' -f1; $BIN/redis-server --port none 2>&1 | grep -c FATAL",
    ),
    (
        "rsync",
        "$BIN/rsync -a tree/ copy/ && diff -r tree copy && $BIN/rsync -ani --delete tree/ copy/ && $BIN/rsync --list-only -r tree | cut -c1-11",
    ),
    (
        "rsvg-convert",
        "echo '<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"20\"><circle cx=\"10\" cy=\"10\" r=\"7\" fill=\"red\"/></svg>' > a.svg; $BIN/rsvg-convert a.svg -o a.png && convert a.png ppm:- | cksum",
    ),
    (
        "ruby",
        "$BIN/ruby --disable-gems -e 'a = (1..300).map { |i| i * 7919 % 301 }.sort_by { |x| -x }; puts a[0], a.group_by { |x| x % 5 }.transform_values(&:sum).inspect, \"abc\".gsub(/b/) { |m| m.upcase }; begin; raise \"x\"; rescue => e; puts e.message; end; f = Fiber.new { Fiber.yield 1; 2 }; puts f.resume, f.resume'",
    ),
    (
        "rustc",
        "echo 'fn main() { println!(\"{}\", (1..9u64).product::<u64>()); }' > m.rs; $BIN/rustc --version | cut -d' ' -f1; $BIN/rustc --emit=metadata -o m.rmeta m.rs && ls m.rmeta",
    ),
    (
        "sed",
        "$BIN/sed -nE 's/^([0-9]+) ([0-9]+) word(1.)/\\3 \\1/p; /^7 /,/^9 /{=;l}' words.txt | cksum; $BIN/sed y/abc/xyz/ in.c | head -3",
    ),
    (
        "sort",
        "$BIN/sort -t' ' -k3,3 -k2,2nr words.txt | cksum; $BIN/sort -uR --random-source=words.txt words.txt | wc -l; seq 50 | $BIN/sort -V | tail -2",
    ),
    (
        "sqlite3",
        "$BIN/sqlite3 :memory: 'create table t(a, b); with recursive c(n) as (select 1 union all select n + 1 from c where n < 900) insert into t select n, n * 7 % 13 from c; create index i on t(b); select b, count(*), sum(a) from t group by b having b > 3; select json_object(1, 2);'",
    ),
    (
        "ssh-keygen",
        "$BIN/ssh-keygen -q -t ed25519 -N '' -f k && $BIN/ssh-keygen -lf k.pub | cut -d' ' -f1,4; $BIN/ssh-keygen -lf in.c 2>&1",
    ),
    (
        "tar",
        "$BIN/tar --sort=name --mtime=2020-01-01 --owner=0 --group=0 -cf a.tar tree && $BIN/tar -tvf a.tar && $BIN/tar -xf a.tar -C $TMPDIR --transform 's/tree/copy/' && diff -r tree copy",
    ),
    (
        "tclsh",
        "echo 'proc f n { if {$n < 2} {return $n}; expr {[f [expr {$n - 1}]] + [f [expr {$n - 2}]]} }; puts [f 15]; puts [regsub -all {b+} abbc X]; catch {error x} m; puts $m; puts [lsort -integer {3 1 2}]' > a.tcl; $BIN/tclsh a.tcl",
    ),
    ("tidy", "echo '<p>a<b>c' | $BIN/tidy -q --show-warnings no -o - 2>&1 | grep -v generator"),
    (
        "vim.basic",
        "cp words.txt v && $BIN/vim.basic -u NONE -es -c '%s/word\\(\\d\\)/\\1w/g' -c 'g/main1/d' -c 'sort n' -c wq v; cksum < v",
    ),
    (
        "xmllint",
        "$BIN/xmllint --xpath 'sum(//e/@n)' in.xml; $BIN/xmllint --format --c14n in.xml | cksum; echo '<a><b></a>' | $BIN/xmllint - 2>&1",
    ),
    (
        "xsltproc",
        "echo '<x:stylesheet version=\"1.0\" xmlns:x=\"http://www.w3.org/1999/XSL/Transform\"><x:template match=\"/\"><x:for-each select=\"//e[@n mod 50 = 0]\"><x:value-of select=\"t\"/></x:for-each></x:template></x:stylesheet>' > a.xsl; $BIN/xsltproc a.xsl in.xml",
    ),
    (
        "xz",
        "$BIN/xz -kT1 words.txt && $BIN/xz -dc words.txt.xz | cksum && $BIN/xz -l words.txt.xz | tail -1 | cut -c1-20",
    ),
    ("zip", "$BIN/zip -qX a.zip words.txt in.c && unzip -l a.zip | tail -1; $BIN/zip -T a.zip"),
    ("zstd", "$BIN/zstd -q -19 --single-thread words.txt -o w.zst && $BIN/zstd -dqc w.zst | cksum"),
];

/// A program with a script that uses it.
pub struct Use {
    /// Name of the program.
    pub name: &'static str,
    /// Path of the program.
    pub path: PathBuf,
    script: &'static str,
}

impl Use {
    /// Runs the script with the program under a command, and returns its output and exit status.
    /// `how` names the directory in which the script finds the program.
    pub fn run(&self, place: &Path, how: &str, under: &str) -> Result<String> {
        wrap_one(&place.join(how), self.name, &self.path, under)?;
        super::once(&SUITE, &self.test(), place, how, Path::new(""))
    }

    fn test(&self) -> Test {
        let script = format!("{}\n{}", include_str!("everyday.sh"), self.script);
        Test { name: self.name.to_owned(), script }
    }
}

/// Returns these programs, or all, if they are installed.
pub fn uses(only: &[&str]) -> Vec<Use> {
    let wanted = USES.iter().filter(|(name, _)| only.is_empty() || only.contains(name));
    // Elsewhere in the path, a script may have the same name.
    let found = wanted.filter_map(|(name, script)| match Path::new("/usr/bin").join(name) {
        path if path.exists() => Some(Use { name, path, script }),
        _ => {
            eprintln!("SKIPPED: everyday: {name} is not installed");
            None
        }
    });
    found.collect()
}

fn commands() -> Vec<(String, PathBuf)> {
    uses(&[]).into_iter().map(|used| (used.name.to_owned(), used.path)).collect()
}

/// Runs these programs, or all, each under a command; `then` is called with each name afterwards.
pub fn run_under(
    under: &str,
    only: &[&str],
    place: &Path,
    mut then: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    for used in uses(only) {
        used.run(place, "under", under).with_context(|| used.name)?;
        then(used.name)?;
    }
    fs::remove_dir_all(place).with_context(|| place.display().to_string())
}
