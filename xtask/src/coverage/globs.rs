//! Globs that match functions of libraries and none of the program's own: only such a glob selects
//! functions of libraries.

use calltap_names::Glob;
use std::collections::BTreeSet;

/// Returns the shortest prefix of one of these names that begins no name of the program, as a glob;
/// the name itself if every prefix does. `None` if the program has functions of all these names.
pub fn outside(own: &BTreeSet<String>, names: &[String]) -> Option<String> {
    let name = names.iter().find(|name| !own.contains(*name))?;
    let ends = name.char_indices().map(|(at, character)| at + character.len_utf8());
    let prefix = ends.map(|end| &name[..end]).find(|prefix| !is_taken(own, prefix));
    Some(prefix.map_or_else(|| Glob::escape(name), |prefix| Glob::escape(prefix) + "*"))
}

/// Whether a name begins with a prefix.
fn is_taken(own: &BTreeSet<String>, prefix: &str) -> bool {
    own.range(prefix.to_owned()..).next().is_some_and(|name| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(own: &[&str], names: &[&str], expected: Option<&str>) {
        let own: BTreeSet<String> = own.iter().map(|name| (*name).to_owned()).collect();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let found = outside(&own, &names);
        assert_eq!(found.as_deref(), expected);
        let Some(glob) = found.map(|glob| Glob::new(&glob)) else { return };
        assert!(names.iter().any(|name| glob.matches(name)));
        assert!(!own.iter().any(|name| glob.matches(name)));
    }

    #[test]
    fn library_globs_match_no_function_of_the_program() {
        check(&["awk+0x10", "main"], &["malloc"], Some("mal*"));
        check(&["awk+0x10", "main"], &["qsort"], Some("q*"));
        check(&["awk+0x10"], &["libc.so.6+0x20"], Some("l*"));
        check(&["mallocs"], &["malloc"], Some("malloc"));
        check(&["a?b"], &["a?*"], Some("a\\?\\**"));
    }

    #[test]
    fn ambiguous_name_is_replaced_by_another_of_the_function() {
        check(&["free"], &["free"], None);
        check(&["free"], &["free", "cfree"], Some("c*"));
    }
}
