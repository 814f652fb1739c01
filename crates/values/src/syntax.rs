//! Errors of rules and conditions that cannot be parsed, each with code, text and advice.
//! `docs/reference/reasons.md` lists them; a test compares it with this table.

calltap_sites::reasons! {
    /// The reason why a rule or a condition cannot be parsed.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Syntax;

    NoFunction { rule: String } = "no-function",
        "'{rule}': no function is named (FUNCTION@arg1,...)", "name a function or a glob before the @";
    OrJoined { condition: String } = "joined-by-or",
        "'{condition}': conditions are joined by && only", "record more, and choose when reading";
    StackBytes { text: String, least: u32, most: u32 } = "stack-bytes",
        "'$callers{text}': of a stack {least} to {most} bytes can be copied ($callers/4096)", "give a number between these";
    NoForm { form: String } = "no-form",
        "'{form}' is no form: there are d, u, x (with 8, 16, 32 or 64 bits), f (32, 64), s (with bytes), c, b, p", "choose one of these";
    LongText { form: String, most: u8 } = "long-text",
        "'{form}': texts are read up to {most} bytes", "read fewer bytes";
    NoOperand { text: String } = "no-operand",
        "'{text}' is nothing that can be read: there are arg1, fparg1, retval, $stack, names of parameters, name->field, +8(arg1)", "choose one of these";
    NoNumber { word: String, condition: String } = "no-number",
        "'{word}' is no number (in '{condition}')", "compare with a number";
    NoComparison { condition: String } = "no-comparison",
        "condition '{condition}': values are compared by ==, !=, <, <=, > and >=", "write == for equality";
    SideMissing { condition: String } = "side-missing",
        "condition '{condition}': a side is missing: a value is compared with a number, as in 'arg1 > 100'", "write both sides";
    NotWhole { condition: String } = "not-whole",
        "'{condition}': only whole numbers can be compared", "compare another value, or leave the form out";
}

impl std::error::Error for Syntax {}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_sites::reason::assert_documented;

    #[test]
    fn codes_are_unique_and_documented() {
        assert_documented(Syntax::ALL);
    }
}
