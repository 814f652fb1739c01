//! Tests of functions in which an instruction may fault and a handler of the fault may throw.

use crate::support::{build, describe, find};
use calltap_sites::find_prologues;

/// A handler may throw where an instruction faults; a copy of it has no unwinding information.
#[test]
fn instructions_with_throwing_faults_are_not_executed_out_of_line() {
    let source = "
        struct Guard { ~Guard(); };
        int count;
        Guard::~Guard() { count++; }
        __attribute__((noinline)) int reads(int *from) { return *from + 1000; }
        __attribute__((noinline)) int guarded(int *from) { Guard guard; return *from; }
        __attribute__((noinline)) int adds(int a, int b) { return (a + b + 1000) * 3; }
        int main(int argc, char **) { return reads(&argc) + guarded(&argc) + adds(argc, 2); }";
    for (flags, expected) in [("", "prologue+0"), ("-fnon-call-exceptions", "may throw an exception")] {
        let built = build(&format!("g++ -O2 -no-pie {flags}"), "cpp", source);
        let mut binary = built.read();
        find_prologues(&built.data(), &mut binary, false).expect("a program");
        let found = describe(find(&binary, "_Z5readsPi"));
        assert!(found.contains(expected), "{flags}: {found}");
        let found = describe(find(&binary, "_Z4addsii"));
        assert!(found.contains("prologue+0"), "{flags}: {found}");
    }
}
