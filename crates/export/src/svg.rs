//! Writes a flame graph as SVG with a small script for zoom and search.

use calltap_analysis::units::one_line;
use std::io::{self, Write};

const WIDTH: f64 = 1200.0;
const ROW: u32 = 17;
const TOP: u32 = 60;
/// Average width of a character of the font used.
const CHARACTER: f64 = 6.6;

/// A box; positions are shares of the whole width.
pub(super) struct Box {
    pub(super) left: f64,
    pub(super) width: f64,
    /// Row, 0 being the lowest.
    pub(super) level: u32,
    pub(super) name: String,
    pub(super) title: String,
}

/// The whole picture.
pub(super) struct Picture {
    pub(super) heading: String,
    pub(super) note: String,
    pub(super) boxes: Vec<Box>,
}

impl Picture {
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let levels = self.boxes.iter().map(|b| b.level + 1).max().unwrap_or(1);
        let height = TOP + levels * ROW + 10;
        writeln!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n{STYLE}\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
             <text x=\"600\" y=\"20\" text-anchor=\"middle\" font-size=\"15\">{}</text>\n\
             <text x=\"600\" y=\"38\" text-anchor=\"middle\">{}</text>\n\
             <text id=\"reset\" class=\"button\" x=\"8\" y=\"20\">reset zoom</text>\n\
             <text id=\"search\" class=\"button\" x=\"1192\" y=\"20\" text-anchor=\"end\">search</text>\n\
             <text id=\"found\" x=\"1192\" y=\"38\" text-anchor=\"end\"></text>\n<g id=\"boxes\">",
            escape(&self.heading),
            escape(&self.note),
        )?;
        for b in &self.boxes {
            let (x, width) = (b.left * WIDTH, b.width * WIDTH);
            let y = TOP + (levels - 1 - b.level) * ROW;
            writeln!(
                out,
                "<g data-x=\"{:.9}\" data-w=\"{:.9}\" data-l=\"{}\" data-n=\"{}\"><title>{}</title>\
                 <rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" fill=\"{}\"/>\
                 <text x=\"{:.2}\" y=\"{}\">{}</text></g>",
                b.left,
                b.width,
                b.level,
                escape(&b.name),
                escape(&b.title),
                ROW - 1,
                colour(&b.name),
                x + 3.0,
                y + 12,
                escape(&fitting(&b.name, width)),
            )?;
        }
        writeln!(out, "</g>\n<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")
    }
}

/// Returns the part of a name that fits into a box.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    if name.chars().count() <= room {
        name.to_owned()
    } else if room < 3 {
        String::new()
    } else {
        name.chars().take(room - 2).chain("..".chars()).collect()
    }
}

/// Returns a light warm colour on which black text is readable, always the same for a name.
fn colour(name: &str) -> String {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("hsl({},{}%,{}%)", 8 + hash % 48, 75 + (hash >> 8) % 20, 66 + (hash >> 16) % 12)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

const STYLE: &str = "<style>.paper{fill:#fdfcf9}text{fill:#111;pointer-events:none}\
.button{pointer-events:all;cursor:pointer;fill:#246}\
#boxes g{cursor:pointer}#boxes g:hover rect{stroke:#000;stroke-width:.7}\
#boxes g.found rect{fill:#b48cf0}#boxes g.below rect{opacity:.45}</style>\n";

const SCRIPT: &str = include_str!("flamegraph.js");
