//! Pieces of generated programs in Go.

/// The pieces: goroutines, growing stacks, panics, channels, tables.
pub const PIECES: [&str; 7] = [
    "//go:noinline\nfunc @_leaf(x, n word) word { switch n { case 0: STEPS case 1: STEPS return x; case 2, 5: STEPS case 3: return x / 3; case 4: STEPS fallthrough; case 6: x++; case 7: STEPS case 8: return 2; case 9: STEPS default: return 7 }; return x * 2 }\n\
     func @_run(x word) word { for n := word(0); n < 12; n++ { x = x*7 + @_leaf(x, n) }; return x }\n",
    "//go:noinline\nfunc @_deep(x, left word, wide [40]word) word { STEPS if left == 0 { return wide[x%40] }; wide[left%40] += x; return @_deep(x, left-1, wide) + 1 }\n\
     func @_run(x word) word { done := make(chan word); go func() { done <- @_deep(x, 60, [40]word{x}) }(); return <-done }\n",
    "//go:noinline\nfunc @_throw(x word) word { STEPS if x%3 == 0 { panic(x) }; return x }\n\
     //go:noinline\nfunc @_pass(x word) (back word) { defer func() { if caught := recover(); caught != nil { back = caught.(word) + 5 } }(); return @_throw(x) + 1 }\n\
     func @_run(x word) word { for n := 0; n < 4; n++ { x = x*5 + @_pass(x) }; return x }\n",
    "//go:noinline\nfunc @_work(x word) word { STEPS return x }\n\
     func @_run(x word) word { var group sync.WaitGroup; all := make([]word, 4); for n := range all { group.Add(1); go func(n int) { defer group.Done(); for turn := 0; turn < 9; turn++ { all[n] = @_work(all[n] + x) } }(n) }; group.Wait(); return all[0] ^ all[3] }\n",
    "type @_shape interface { area(x word) word }\ntype @_a struct{ side word }\ntype @_b struct{ other, side word }\n\
     //go:noinline\nfunc (a @_a) area(x word) word { STEPS return x + a.side }\n//go:noinline\nfunc (b *@_b) area(x word) word { STEPS return x*b.side + b.other }\n\
     func @_run(x word) word { all := []@_shape{@_a{x}, &@_b{3, x}, @_a{NUMBER }}; for _, one := range all { x = x*3 + one.area(x) }; return x }\n",
    "//go:noinline\nfunc @_each(n word, do func(word)) { for i := word(0); i < n; i++ { do(i) } }\n\
     func @_run(x word) word { seen := map[word]string{}; @_each(NUMBER , func(i word) { x := x + i; STEPS seen[x%13] += strconv.FormatUint(x, 16) }); for n := word(0); n < 13; n++ { x = x*3 + word(len(seen[n])) }; return x }\n",
    "//go:noinline\nfunc @_even(x, n word) word { STEPS if n == 0 { return x }; return @_odd(x, n-1) }\n//go:noinline\nfunc @_odd(x, n word) word { if n == 0 { return ^x }; STEPS return @_even(x, n-1) }\n\
     func @_run(x word) word { runtime.Gosched(); return @_even(x, x%NUMBER ) }\n",
];

const HEAD: &str = "\
package main

import (
\t\"fmt\"
\t\"os\"
\t\"runtime\"
\t\"strconv\"
\t\"sync\"
)

type word = uint64

var _ sync.Mutex
var _ = runtime.GOOS
";

/// Returns the program with these functions and calls.
pub fn program(code: &str, calls: &str) -> String {
    // Go requires a line break behind a block.
    format!(
        "{HEAD}{code}func main() {{\n\tvar sum, rounds word = 0, 1\n\tif len(os.Args) > 1 {{\n\t\trounds, _ = strconv.ParseUint(os.Args[1], 10, 64)\n\t}}\n\
         \tfor round := word(0); round < rounds; round++ {{\n{calls}\t\tif rounds < 100 {{\n\t\t\tfmt.Println(sum)\n\t\t}}\n\t}}\n\tfmt.Println(sum)\n\tos.Exit(int(sum % 7))\n}}\n"
    )
}
