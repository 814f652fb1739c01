//! "Did you mean": the names most similar to one that does not exist.

use strsim::generic_levenshtein;

/// Maximum length of a compared name, in bytes.
const MAX_NAME_LEN: usize = 512;

/// Returns up to `n` of `candidates` most similar to `wanted`: by edit distance, ignoring case, and
/// names that contain `wanted`. Names that differ in more than a third of their length are left
/// out.
pub fn nearest_names<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    n: usize,
) -> Vec<&'a str> {
    let wanted = wanted.to_ascii_lowercase();
    if wanted.is_empty() || wanted.len() > MAX_NAME_LEN || n == 0 {
        return Vec::new();
    }
    let allowed = (wanted.len() / 3).max(1);
    let mut best: Vec<(usize, &str)> = Vec::new();
    for name in candidates {
        let lower = name.to_ascii_lowercase();
        // A name that contains `wanted` ranks after any near miss.
        let distance = match distance(&wanted, &lower, allowed) {
            Some(distance) => distance,
            None if wanted.len() >= 3 && lower.contains(&wanted) => allowed + lower.len() - wanted.len(),
            None => continue,
        };
        let place = (distance, name);
        if best.len() == n && best.last().is_some_and(|worst| place >= *worst) {
            continue;
        }
        if let Err(at) = best.binary_search(&place) {
            best.insert(at, place);
            best.truncate(n);
        }
    }
    best.into_iter().map(|(_, name)| name).collect()
}

/// Returns the Levenshtein distance, if it is at most `limit`.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    Some(generic_levenshtein(&Bytes(a), &Bytes(b))).filter(|distance| *distance <= limit)
}

/// The bytes of a name, one by one: linker symbols are ASCII.
struct Bytes<'a>(&'a str);

impl<'a> IntoIterator for &'a Bytes<'_> {
    type Item = u8;
    type IntoIter = std::str::Bytes<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::nearest_names;

    #[test]
    fn offers_near_misses_then_names_containing_the_word() {
        let names = ["malloc", "calloc", "realloc", "free", "my_mallok_hook", "Malloc"];
        assert_eq!(nearest_names("mallok", names, 3), ["Malloc", "malloc", "calloc"]);
        assert_eq!(nearest_names("mallok_hook", names, 5), ["my_mallok_hook"]);
        assert!(nearest_names("zzz", names, 3).is_empty());
    }
}
