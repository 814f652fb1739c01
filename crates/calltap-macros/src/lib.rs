//! `#[traced]`, for the `calltap` crate, which re-exports it.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Makes a function traceable with the stable compiler and without flags, by five bytes of NOP at
/// the beginning of its body.
///
/// Its name for filters is its path, `module::function`, for a method `module::Type::method` if the
/// program has symbols. The linker symbol, which tells instances of generic functions apart, works,
/// too. Callbacks get neither arguments nor parent, as the site is in the body.
///
/// - The function is not inlined, unless it has an `inline` attribute of its own; then each inlined
///   copy is a site with the same name.
/// - A generic function has a site in each instance, a method has one, and an `async fn` has one
///   that is reached when the future is first polled.
/// - A call ends with its body, even by a panic; an `async fn` ends when its future is ready or
///   dropped.
/// - For closures and blocks, use `calltap::site!`.
/// - `const fn` and functions without a body are refused.
#[proc_macro_attribute]
pub fn traced(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let result =
        if arguments.is_empty() { with_site(item.clone()) } else { Err("#[traced] takes no arguments") };
    result.unwrap_or_else(|error| {
        // The function stays, so that this is the only error.
        let message: TokenStream = format!("::core::compile_error!({error:?});").parse().unwrap_or_default();
        message.into_iter().chain(item).collect()
    })
}

/// The code in front of the body: a frame, whose drop is a site, too, and the site at the
/// beginning.
const SITE: &str = "
    #[allow(missing_docs)]
    struct CalltapFrame(::calltap::Frame);
    impl ::core::ops::Drop for CalltapFrame {
        #[inline(always)]
        fn drop(&mut self) {
            ::calltap::site!(@end NAME, &self.0);
        }
    }
    let calltap_frame = CalltapFrame(::calltap::Frame::new());
    ::calltap::site!(@entry NAME, &calltap_frame.0);
";

fn with_site(item: TokenStream) -> Result<TokenStream, &'static str> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let is_word =
        |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident.to_string() == word);
    let place = tokens.iter().position(|token| is_word(token, "fn")).ok_or("#[traced] is for functions")?;
    if tokens[..place].iter().any(|token| is_word(token, "const")) {
        return Err("a const fn cannot be traced: it may run in the compiler");
    }
    let name = tokens.get(place + 1).map(ToString::to_string).unwrap_or_default();
    let Some(TokenTree::Group(body)) = tokens.pop() else { return Err("#[traced] needs a body") };
    if body.delimiter() != Delimiter::Brace {
        return Err("#[traced] needs a body");
    }
    let name = name.trim_start_matches("r#");
    let site = SITE.replace("NAME", &format!("concat!(module_path!(), \"::{name}\")"));
    let site: TokenStream = site.parse().map_err(|_| "a function's name was expected")?;
    let mut new = Group::new(Delimiter::Brace, site.into_iter().chain(body.stream()).collect());
    new.set_span(body.span());
    let is_inline = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.stream().into_iter().any(|token| is_word(&token, "inline")));
    let inline = match tokens[..place].iter().any(is_inline) {
        true => TokenStream::new(),
        false => "#[inline(never)]".parse().unwrap_or_default(),
    };
    Ok(inline.into_iter().chain(tokens).chain([TokenTree::Group(new)]).collect())
}
