//! "Did you mean": names closest to one that does not exist.

/// Longest name compared, in bytes.
const LONGEST: usize = 512;

/// The up to `n` of `candidates` most like `wanted`: by edit distance without regard to case, names containing
/// `wanted` included. Names that differ in more than a third of their length are not offered.
pub fn nearest_names<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    n: usize,
) -> Vec<&'a str> {
    let wanted = wanted.to_ascii_lowercase();
    if wanted.is_empty() || wanted.len() > LONGEST || n == 0 {
        return Vec::new();
    }
    let allowed = (wanted.len() / 3).max(1);
    let mut rows = Rows::default();
    let mut best: Vec<(usize, &str)> = Vec::new();
    for name in candidates {
        let lower = name.to_ascii_lowercase();
        // A containing name ranks behind any near miss.
        let distance = match rows.distance(wanted.as_bytes(), lower.as_bytes(), allowed) {
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

#[derive(Default)]
struct Rows {
    before: Vec<usize>,
    now: Vec<usize>,
}

impl Rows {
    /// Levenshtein distance if it is at most `limit`.
    fn distance(&mut self, a: &[u8], b: &[u8], limit: usize) -> Option<usize> {
        if a.len().abs_diff(b.len()) > limit {
            return None;
        }
        self.before.clear();
        self.before.extend(0..=b.len());
        for (i, x) in a.iter().enumerate() {
            self.now.clear();
            self.now.push(i + 1);
            let mut least = i + 1;
            for (j, y) in b.iter().enumerate() {
                let replaced = self.before[j] + usize::from(x != y);
                let cell = replaced.min(self.before[j + 1] + 1).min(self.now[j] + 1);
                least = least.min(cell);
                self.now.push(cell);
            }
            if least > limit {
                return None;
            }
            std::mem::swap(&mut self.before, &mut self.now);
        }
        self.before.last().copied().filter(|&distance| distance <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::nearest_names;

    #[test]
    fn offers_near_misses_first_and_then_names_containing_it() {
        let names = ["malloc", "calloc", "realloc", "free", "my_mallok_hook", "Malloc"];
        assert_eq!(nearest_names("mallok", names, 3), ["Malloc", "malloc", "calloc"]);
        assert_eq!(nearest_names("mallok_hook", names, 5), ["my_mallok_hook"]);
        assert!(nearest_names("zzz", names, 3).is_empty());
    }
}
