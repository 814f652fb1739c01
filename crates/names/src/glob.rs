//! Patterns with the rules of ftrace filter files.
//!
//! `abc` matches exactly that name, `abc*` a prefix, `*abc` a suffix, `*abc*` an infix. A `*`
//! elsewhere, `?`, `[` or `\` make it a full glob: `?` is any one character, `[a-c]` one of a
//! class, `[!a-c]` one outside it, `\` takes the next character literally; an unclosed `[` stands
//! for itself. The whole name must match; case counts. There are no `{}` alternatives. Any text is
//! a valid pattern, and matching takes at most pattern x name steps.

/// A compiled pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    pattern: String,
    matcher: Matcher,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Matcher {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Infix(String),
    Full(Vec<Token>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Star,
    Any,
    Literal(char),
    Class { inverted: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// Compiles `pattern`.
    pub fn new(pattern: &str) -> Self {
        Self { pattern: pattern.to_owned(), matcher: compile(pattern) }
    }

    /// Returns the pattern that matches this name only.
    pub fn escape(name: &str) -> String {
        let mut pattern = String::with_capacity(name.len());
        for c in name.chars() {
            if matches!(c, '\\' | '[' | '*' | '?') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern
    }

    /// Returns the pattern's text.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns the only matching name, if the pattern has no wildcards.
    pub fn exact(&self) -> Option<&str> {
        if let Matcher::Exact(name) = &self.matcher { Some(name) } else { None }
    }

    /// Whether all of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        match &self.matcher {
            Matcher::Exact(text) => name == text,
            Matcher::Prefix(text) => name.starts_with(text),
            Matcher::Suffix(text) => name.ends_with(text),
            Matcher::Infix(text) => name.contains(text.as_str()),
            Matcher::Full(tokens) => full_match(tokens, name),
        }
    }
}

impl std::str::FromStr for Glob {
    type Err = std::convert::Infallible;

    fn from_str(pattern: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(pattern))
    }
}

fn compile(pattern: &str) -> Matcher {
    let inner = pattern.strip_prefix('*').unwrap_or(pattern);
    let from_start = inner.len() == pattern.len();
    let (inner, to_end) = match inner.strip_suffix('*') {
        Some(inner) => (inner, false),
        None => (inner, true),
    };
    if inner.contains(['*', '?', '[', '\\']) {
        return Matcher::Full(tokens(pattern));
    }
    let text = inner.to_owned();
    match (from_start, to_end) {
        (true, true) => Matcher::Exact(text),
        (true, false) => Matcher::Prefix(text),
        (false, true) => Matcher::Suffix(text),
        (false, false) => Matcher::Infix(text),
    }
}

fn tokens(pattern: &str) -> Vec<Token> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        tokens.push(match c {
            '*' => {
                if tokens.last() == Some(&Token::Star) {
                    continue;
                }
                Token::Star
            }
            '?' => Token::Any,
            '\\' => match chars.get(at) {
                Some(&next) => {
                    at += 1;
                    Token::Literal(next)
                }
                None => Token::Literal('\\'),
            },
            '[' => match class(&chars[at..]) {
                Some((token, length)) => {
                    at += length;
                    token
                }
                None => Token::Literal('['),
            },
            other => Token::Literal(other),
        });
    }
    tokens
}

/// Parses a class after its `[`; also returns the characters used, `]` included.
fn class(chars: &[char]) -> Option<(Token, usize)> {
    let inverted = chars.first() == Some(&'!');
    let mut at = usize::from(inverted);
    let mut ranges = Vec::new();
    loop {
        let low = *chars.get(at)?;
        at += 1;
        let mut high = low;
        if chars.get(at) == Some(&'-') && chars.get(at + 1).is_some_and(|&c| c != ']') {
            high = chars[at + 1];
            at += 2;
        }
        ranges.push((low, high));
        // A `]` right at the start was taken as a member above.
        if *chars.get(at)? == ']' {
            return Some((Token::Class { inverted, ranges }, at + 1));
        }
    }
}

fn full_match(tokens: &[Token], name: &str) -> bool {
    let (mut rest, mut at) = (name, 0);
    // After a mismatch, matching resumes after the newest star, which then takes one more
    // character. Older stars need not be tried again.
    let mut retry: Option<(usize, &str)> = None;
    loop {
        if tokens.get(at) == Some(&Token::Star) {
            at += 1;
            retry = Some((at, rest));
            continue;
        }
        let mut chars = rest.chars();
        match (tokens.get(at), chars.next()) {
            (None, None) => return true,
            (Some(token), Some(c)) if token.accepts(c) => {
                at += 1;
                rest = chars.as_str();
                continue;
            }
            _ => {}
        }
        let Some((star, from)) = retry else { return false };
        let mut chars = from.chars();
        if chars.next().is_none() {
            return false;
        }
        retry = Some((star, chars.as_str()));
        (at, rest) = (star, chars.as_str());
    }
}

impl Token {
    fn accepts(&self, c: char) -> bool {
        match self {
            Token::Star | Token::Any => true,
            Token::Literal(wanted) => *wanted == c,
            Token::Class { inverted, ranges } => {
                ranges.iter().any(|&(low, high)| low <= c && c <= high) != *inverted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[track_caller]
    fn check(pattern: &str, matching: &str, others: &str) {
        let glob = Glob::new(pattern);
        for name in matching.split_whitespace() {
            assert!(glob.matches(name), "'{pattern}' must match '{name}'");
        }
        for name in others.split_whitespace() {
            assert!(!glob.matches(name), "'{pattern}' must not match '{name}'");
        }
    }

    #[test]
    fn ftrace_patterns() {
        check("schedule", "schedule", "reschedule schedule_tail Schedule");
        check("sched*", "sched schedule", "resched");
        check("*lock", "lock spin_lock", "lock_irq");
        check("*lock*", "lock spin_lock_irq", "loc");
        check("*", "anything", "");
        check("**", "anything", "");
        check("***", "anything", "");
        check("a*b", "ab aXb aXbb", "a abc b");
        check("sch?dule", "schedule schüdule", "schdule scheedule");
        check("[Ss]y[Ss]_*", "sys_read SyS_read", "sYs_read");
        check("[!r]ead", "head", "read ead");
        check("[a-d]x", "ax dx", "ex -x");
        check("[]x]", "] x", "y");
        check("x[", "x[", "x");
        check("x[a", "x[a", "xa");
        check(r"a\*b", "a*b", "axb");
        check(r"oper*\*=", "operator*=", "operator=");
        check("{a,b}", "{a,b}", "a b");
        check("a-", "a-", "a");
        check("[a-]", "a -", "b");
    }

    #[test]
    fn many_stars_on_a_long_name_end_soon() {
        let name = "a".repeat(4000);
        assert!(!Glob::new(&format!("{}b", "*a?".repeat(200))).matches(&name));
    }
}
