//! Demangles linker symbols.

use std::fmt::{self, Write as _};

/// Maximum length of a demangled name; a symbol with a longer one is shown as it is.
const MAX_NAME_LEN: usize = 16 << 10;

/// Suffix of the symbol of a linker stub for a library function.
const STUB: &str = "@plt";

/// Demangles `symbol` (Rust legacy and v0 without the hash, C++), or returns it unchanged. A linker
/// stub gets the name of its function.
pub fn demangle(symbol: &str) -> String {
    let symbol = symbol.strip_suffix(STUB).unwrap_or(symbol);
    let mut text = Limited(String::new());
    let is_rust = symbol.starts_with("_R") || has_hash(symbol);
    if let Some(name) = is_rust.then(|| rustc_demangle::try_demangle(symbol).ok()).flatten() {
        if write!(text, "{name:#}").is_ok() {
            return text.0;
        }
    } else if symbol.starts_with("_Z") || symbol.starts_with("__Z") {
        let options = cpp_demangle::DemangleOptions::new().no_return_type();
        let parsed = cpp_demangle::Symbol::new(symbol.as_bytes());
        if parsed.is_ok_and(|parsed| parsed.structured_demangle(&mut text, &options).is_ok()) {
            return text.0;
        }
    }
    symbol.to_owned()
}

/// Whether a symbol has the hash at the end of Rust's legacy names. Without it a name is that of a
/// C++ object in a namespace, which looks the same otherwise.
fn has_hash(symbol: &str) -> bool {
    let hash = symbol.rsplit_once("17h").and_then(|(_, rest)| rest.split_once('E'));
    hash.is_some_and(|(hash, _)| hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// A string that refuses to grow past [`MAX_NAME_LEN`]: a few bytes of mangled name can stand for
/// gigabytes.
struct Limited(String);

impl fmt::Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_LEN {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn demangles_names_of_compilers() {
        let cases = [
            ("main", "main"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.123", "core::fmt::Formatter::pad"),
            ("_ZN5store12_GLOBAL__N_15cacheE", "store::(anonymous namespace)::cache"),
            ("_ZN3app4poolE", "app::pool"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_Z3maxIiET_S0_S0_", "max<int>(int, int)"),
            ("_Zbroken", "_Zbroken"),
            ("puts@plt", "puts"),
            ("_Z3maxIiET_S0_S0_@plt", "max<int>(int, int)"),
            ("", ""),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangle(symbol), name);
        }
    }
}
