//! Refuses words and comments that the project's language rules out: subjects that name no program,
//! thread or function.

use crate::sources::{self, SOURCES, files, root};
use std::path::PathBuf;

const REFUSED: [&str; 3] = ["nobody", "somebody", "whoever"];
/// Pronouns that comments may not use: calltap and its parts have names, and a thread, process or
/// function is not a person.
const PRONOUNS: [&str; 12] =
    ["we", "our", "ours", "he", "his", "him", "she", "her", "anybody", "everybody", "someone", "everyone"];
const KINDS: [&str; 11] = ["rs", "md", "s", "c", "cpp", "h", "js", "mjs", "toml", "py", "go"];
/// Openings of a comment without a subject of its own: headless clauses, questions, and sentences
/// that lean on the comment before.
const HEADLESS: [&str; 23] = [
    "What", "Whatever", "Those", "Is", "Does", "Do", "Has", "Have", "Are", "Was", "Were", "Can", "May",
    "Must", "Should", "Will", "Who", "Whose", "And", "But", "Nothing", "So many", "The same",
];
/// Openings of a whole comment that lean on another one. A later paragraph may begin so.
const LEANING: [&str; 6] = ["It", "Its", "They", "Their", "That", "As above"];
/// Words that names of tests may not have: a name states a subject and its behaviour.
const RIDDLES: [&str; 17] = [
    "what", "who", "whom", "it", "they", "them", "we", "us", "our", "he", "his", "him", "she", "her", "told",
    "said", "harm",
];
/// First words of names of tests without a subject.
const HEADLESS_NAMES: [&str; 2] = ["of", "nor"];
/// Maximum number of columns of a line of prose.
const COLUMNS: usize = 100;
/// Names of constants that say of no quantity that it is a limit.
const SUPERLATIVES: [&str; 9] =
    ["LONGEST", "SHORTEST", "MOST", "LEAST", "DEEPEST", "LARGEST", "SMALLEST", "NARROWEST", "MANY"];
/// The file with the words themselves.
const THIS: &str = "language.rs";

/// Panics with an advice if lines of these files are refused.
fn refuse(all: Vec<PathBuf>, advice: &str, is_refused: impl Fn(&str) -> bool) {
    refuse_behind(all, advice, |_, line| is_refused(line));
}

/// Panics with an advice if lines of these files are refused; `is_refused` gets the line before and
/// the line.
fn refuse_behind(all: Vec<PathBuf>, advice: &str, is_refused: impl Fn(&str, &str) -> bool) {
    assert!(all.len() > 300, "only {} files", all.len());
    refuse_in(all, advice, is_refused);
}

/// Does as [`refuse_behind`], with any number of files.
fn refuse_in(all: Vec<PathBuf>, advice: &str, is_refused: impl Fn(&str, &str) -> bool) {
    let mut refused = Vec::new();
    for path in all.into_iter().filter(|path| path.file_name().is_none_or(|name| name != THIS)) {
        let mut before = String::new();
        for (n, line) in sources::text(&path).lines().enumerate() {
            if is_refused(&before, line) {
                refused.push(format!("{}:{}: {}", path.display(), n + 1, line.trim()));
            }
            before = line.to_owned();
        }
    }
    assert!(refused.is_empty(), "{advice}:\n{}", refused.join("\n"));
}

#[test]
fn sentences_have_concrete_subjects() {
    let mut all = files(&[&SOURCES[..], &["docs"]].concat(), &KINDS);
    all.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", ".ci/run"]
            .map(|name| root().join(name)),
    );
    refuse(all, "name the program, thread or function that acts", |line| {
        let line = line.to_lowercase();
        REFUSED.iter().any(|word| line.contains(word))
    });
}

/// Splits a line that is a comment into the comment's sign and its text.
fn comment(line: &str) -> Option<(&str, &str)> {
    let signs = ["///", "//!", "//"];
    let line = line.trim_start();
    signs.iter().find_map(|sign| Some((*sign, line.strip_prefix(sign)?.strip_prefix(' ')?)))
}

#[test]
fn comments_open_with_a_noun_or_a_verb() {
    refuse_behind(
        files(&SOURCES, &["rs"]),
        "open with the noun that the item is, with 'Returns', 'Whether' ...",
        |before, line| {
            let Some((sign, text)) = comment(line) else { return false };
            let is_first = comment(before).is_none_or(|(other, _)| other != sign);
            let opens = |words: &&str| {
                text.strip_prefix(*words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            let is_whole = !before.trim_start().starts_with("//");
            is_first && HEADLESS.iter().any(opens) || is_whole && LEANING.iter().any(opens)
        },
    );
}

#[test]
fn constants_are_named_by_their_quantity() {
    refuse(files(&SOURCES, &["rs"]), "name the quantity: MAX_NAME_LEN, MIN_WIDTH, REQUEST_TIMEOUT", |line| {
        let name = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        let name = name.trim_start_matches("pub(super) ").strip_prefix("const ");
        let name = name.and_then(|rest| rest.split_once(':')).map(|(name, _)| name);
        name.is_some_and(|name| SUPERLATIVES.contains(&name))
    });
}

#[test]
fn prose_of_comments_wraps() {
    refuse(files(&SOURCES, &["rs"]), "wrap comments at 100 columns", |line| {
        // Tables and drawings have columns of their own.
        let is_prose = |text: &str| !text.contains('|') && !text.contains("   ");
        line.chars().count() > COLUMNS && comment(line).is_some_and(|(_, text)| is_prose(text))
    });
}

#[test]
fn prose_of_documents_wraps() {
    let mut all = files(&["docs"], &["md"]);
    all.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)),
    );
    // The benchmarks make its text.
    all.retain(|path| !path.ends_with("performance.md"));
    assert!(all.len() > 30, "only {} files", all.len());
    let is_in_code = std::cell::Cell::new(false);
    refuse_in(all, "wrap prose at 100 columns", |_, line| {
        is_in_code.set(is_in_code.get() ^ line.starts_with("```"));
        if is_in_code.get() {
            return false;
        }
        // Tables, pictures and commands do not wrap, nor does a word of a paragraph or of a list.
        let is_prose = !["|", "!", "    "].iter().any(|sign| line.starts_with(sign));
        let words = line.trim_start_matches(['-', ' ']).split(' ').count();
        is_prose && words > 1 && line.chars().count() > COLUMNS
    });
}

#[test]
fn comments_name_the_acting_part() {
    refuse(files(&SOURCES, &["rs"]), "name the program, thread or function", |line| {
        // A `//` in a string may be taken for a comment.
        let Some((_, comment)) = line.split_once("//") else { return false };
        // Text in backquotes is code.
        let prose: String = comment.split('`').step_by(2).collect();
        let mut words = prose.split(|c: char| !c.is_alphanumeric());
        words.any(|word| PRONOUNS.contains(&&*word.to_lowercase()))
    });
}

#[test]
fn strings_name_the_acting_part() {
    refuse(files(&SOURCES, &["rs"]), "name the program, thread or function", |line| {
        if comment(line).is_some() {
            return false;
        }
        // Every other part between quotation marks is in a string; `{}` has an expression.
        let mut strings = line.split('"').skip(1).step_by(2);
        strings.any(|string| {
            let prose: String = string.split(['{', '}']).step_by(2).collect();
            prose.split(|c: char| !c.is_alphanumeric()).any(|word| PRONOUNS.contains(&word))
        })
    });
}

/// Splits the name of a function that a line declares into words.
fn function_words(line: &str) -> Option<Vec<&str>> {
    let (name, _) = line.trim_start().strip_prefix("fn ")?.split_once(['(', '<'])?;
    Some(name.split('_').collect())
}

#[test]
fn test_names_have_a_subject_and_a_verb() {
    refuse_behind(
        files(&SOURCES, &["rs"]),
        "name the subject of the test and the behaviour, as in 'attach_refuses_zombies'",
        |before, line| {
            let Some(words) = function_words(line) else { return false };
            let is_test = ["#[test]", "#[ignore"].iter().any(|opening| before.trim().starts_with(opening));
            let is_riddle = words.iter().any(|word| RIDDLES.contains(word))
                || HEADLESS_NAMES.contains(&words[0])
                || words.windows(2).any(|pair| matches!(pair, ["give" | "gives", "way"]));
            is_test && is_riddle
        },
    );
}

/// A comment that is one sentence in parentheses claims not to matter: it is left out, or stands
/// without them.
#[test]
fn no_comment_is_in_parentheses() {
    refuse(files(&SOURCES, &["rs"]), "comments in parentheses", |line| {
        let comment = line.trim_start().strip_prefix("//").unwrap_or_default();
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        let sentence = comment.strip_prefix('(').is_some_and(|rest| rest.starts_with(char::is_uppercase));
        sentence && comment.ends_with(".)")
    });
}
