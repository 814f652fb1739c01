//! Names of Go and Python, whose parts are separated by dots: `main.(*Srv).Handle`,
//! `app.db.Pool.get`.

use crate::function::{CLONES, PIECES};

/// Suffix that gcc puts behind the name of a function whose implementation it chooses at run time.
const RESOLVER: &str = ".resolver";

/// Returns the parts of a name, without the path of its package, the `*` and parentheses of a
/// receiver, and type arguments. `None` if it has no dots that separate parts.
fn parts(name: &str) -> Option<Vec<String>> {
    let is_other = name.contains("::") || [".", "_Z", "_R"].iter().any(|start| name.starts_with(start));
    if !name.contains('.') || is_other || has_suffix(name) {
        return None;
    }
    let (mut parts, mut depth) = (vec![String::new()], 0_usize);
    for c in name.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            _ if depth > 0 => {}
            '/' => parts = vec![String::new()],
            '.' => parts.push(String::new()),
            // A name with a colon is a file with a line, or made by the compiler.
            ':' => return None,
            '(' | ')' | '*' => {}
            _ => parts.last_mut()?.push(c),
        }
    }
    (parts.len() > 1 && depth == 0).then_some(parts)
}

/// Whether a compiler of another language has put a suffix behind a dot.
fn has_suffix(name: &str) -> bool {
    CLONES.iter().chain(&PIECES).chain([&RESOLVER]).any(|suffix| name.contains(suffix))
}

/// A word that is compared with the last parts of names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LastParts {
    /// Number of parts.
    pub parts: usize,
    /// The parts, joined by dots.
    pub text: String,
}

impl LastParts {
    /// Returns a word as an ending. `None` if it has wildcards: `main.*` is compared with whole
    /// names, as it would otherwise have closures of `runtime.main`.
    pub(crate) fn of(word: &str) -> Option<LastParts> {
        let plain = word.replace("(*", "(");
        if plain.is_empty() || plain.contains(['*', '?', '[', '\\', ':', '/', ' ', '<', '{', '!']) {
            return None;
        }
        let text: String = plain.chars().filter(|c| !matches!(c, '(' | ')')).collect();
        let parts = 1 + text.matches('.').count();
        text.split('.').all(|part| !part.is_empty()).then_some(LastParts { parts, text })
    }

    /// Whether a name ends so.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        last(name, self.parts).is_some_and(|text| text == self.text)
    }
}

/// Returns the last parts of a name, joined by dots.
pub(crate) fn last(name: &str, count: usize) -> Option<String> {
    let parts = parts(name)?;
    Some(parts[parts.len().checked_sub(count)?..].join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, words: &[&str], others: &[&str]) {
        let is_of = |word: &&&str| LastParts::of(word).is_some_and(|ending| ending.is_of(name));
        assert_eq!(words.iter().find(|word| !is_of(word)), None, "{name}");
        assert_eq!(others.iter().find(is_of), None, "{name}");
    }

    #[test]
    fn words_are_ends_of_dotted_names() {
        check(
            "main.(*Srv).Handle",
            &["Handle", "Srv.Handle", "(*Srv).Handle", "main.(*Srv).Handle", "main.Srv.Handle"],
            &["Srv", "andle", "main", "*Handle", "other.Srv.Handle", ""],
        );
        check(
            "github.com/gin-gonic/gin.(*Engine).ServeHTTP",
            &["ServeHTTP", "gin.Engine.ServeHTTP"],
            &["com/gin-gonic/gin.Engine.ServeHTTP", "gonic.gin.Engine.ServeHTTP"],
        );
        check("main.Map[go.shape.int,go.shape.string]", &["Map", "main.Map"], &["string", "shape.string"]);
        check("main.handle.func1", &["func1", "handle.func1"], &["main.*", "handle"]);
        check("app.db.Pool.get", &["get", "Pool.get", "db.Pool.get"], &["Pool", "app.db"]);
        check("__main__.f.<locals>.g", &["g"], &["f"]);
    }

    #[test]
    fn suffixes_of_compilers_are_no_parts() {
        for name in ["parse.isra.0", "parse.cold", "parse", ".L12.x", "app::f.0", "handlers.py:12", "_Zf.0"] {
            assert_eq!(last(name, 1), None, "{name}");
        }
    }
}
