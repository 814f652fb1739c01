//! Every way in which threads can meet a site that is being changed, on a machine that fetches stale bytes.

use calltap_patch::{Avma, Change, Demand, Fate, Site, State, Text, carry_out};

#[path = "model/machine.rs"]
mod machine;
#[path = "model/proof.rs"]
mod proof;
#[path = "model/sites.rs"]
mod sites;

use machine::World;
use proof::{Falsify, Harm, Proof};
use sites::{Act, Case, Look, PLACES};

fn as_it_is(_: &Case, acts: Vec<Act>) -> Vec<Act> {
    acts
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let start = std::time::Instant::now();
        let result = Proof::new(&case, &as_it_is).and_then(|mut proof| proof.changes());
        if let Err(harm) = result {
            panic!("{}:\n{harm}", case.name);
        }
        let r = Proof::new(&case, &as_it_is).and_then(|mut proof| proof.recoveries(&[0]));
        println!(
            "{} {:?} {:?}",
            case.name,
            start.elapsed(),
            r.map(|r| {
                let n = r.len();
                let mut r = r;
                r.dedup();
                (n, r)
            })
        );
    }
}

#[test]
fn x() {
    check(sites::every_kind(PLACES[0]));
}
