//! Formats lines as the kernel's function_graph tracer prints them.

use super::spent::Share;
use super::waits::Wait;
use super::{Closed, Effect, Options, SourceLine};
use crate::bytes::push_decimal;
use crate::colours;
use crate::names::Names;
use crate::sources::source::Source;
use crate::stamp::Stamp;
use crate::symbols::Symbols;
use crate::tree::{Ending, Enter};
use crate::units::one_line;
use crate::values::{self, FormattedValue, without_parameters};
use calltap_names::fitted;
use calltap_trace::{SiteId, ThreadId};
use std::cell::OnceCell;

const BAR: &[u8] = b" ------------------------------------------\n";
/// Separator after the task column.
const BEHIND_TASK: &str = " | ";
/// Deepest indentation; deeper calls get the same.
const INDENT: usize = 64;

/// Details of an event.
pub(super) struct EventDetails<'a> {
    /// The captured values.
    pub(super) values: &'a [u8],
    /// End and results of a call that begins, if it is a leaf.
    pub(super) leaf: Option<(u64, &'a [u8])>,
    /// Shares of the time of a call that ends.
    pub(super) spent: &'a [Share],
}

pub(super) struct GraphText<'a> {
    source: &'a dyn Source,
    names: &'a Names<'a>,
    symbols: Symbols<'a>,
    /// The task column of each thread with the separator after it, made on first use.
    tasks: Vec<String>,
    /// Name of each function with parentheses, and the length of the name alone, made on first use.
    functions: Vec<OnceCell<(String, usize)>>,
    source_line: Option<SourceLine>,
    /// Comment with the source line of each function, made on first use.
    lines: Vec<OnceCell<String>>,
    last: Option<ThreadId>,
    tail: bool,
    time: Option<Stamp>,
    durations: bool,
    /// Characters of a line, if names are fitted.
    width: Option<usize>,
}

impl<'a> GraphText<'a> {
    pub(super) fn new(source: &'a dyn Source, names: &'a Names<'a>, options: &Options) -> Self {
        Self {
            source,
            names,
            symbols: Symbols::new(source.meta(), names),
            tasks: vec![String::new(); source.meta().threads.len()],
            // The last entry stands for all undescribed functions.
            functions: vec![OnceCell::new(); source.meta().sites.len() + 1],
            source_line: options.source_line,
            lines: vec![
                OnceCell::new();
                if options.source_line.is_some() { source.meta().sites.len() } else { 0 }
            ],
            last: None,
            tail: options.tail,
            time: options.time.filter(|_| source.has_time()),
            durations: source.has_time(),
            width: options.width,
        }
    }

    pub(super) fn header(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(b"# tracer: function_graph\n#\n");
        let time = match self.time {
            Some(Stamp::Since(_)) => ["     TIME       ", "      |         "],
            Some(Stamp::Wall(_)) => ["      TIME         ", "       |           "],
            None => [""; 2],
        };
        let duration = if self.durations { ["  DURATION   ", "   |   |      "] } else { [""; 2] };
        let task = ["  TASK/PID       ", "   |    |        "];
        let calls = ["               FUNCTION CALLS\n", "               |   |   |   |\n"];
        for line in 0..2 {
            buffer.push(b'#');
            for cell in [time[line], task[line], duration[line], calls[line]] {
                buffer.extend_from_slice(cell.as_bytes());
            }
        }
    }

    /// Prints the line of an event.
    pub(super) fn line(
        &mut self,
        buffer: &mut Vec<u8>,
        thread: ThreadId,
        now: u64,
        effect: &Effect,
        details: &EventDetails<'_>,
    ) {
        self.banner(buffer, thread);
        if let Effect::Lost { entries, exits } = effect {
            lost(buffer, self.names, thread, u64::from(*entries) + u64::from(*exits));
            return;
        }
        self.begin(buffer, thread, now);
        match effect {
            Effect::Enter(enter) => self.enter(buffer, thread, enter, details),
            Effect::Close(call) => self.close(buffer, thread, call, details),
            Effect::Orphan { site, depth } => {
                self.duration(buffer, None);
                indent(buffer, *depth);
                buffer.push(b'}');
                self.comment(buffer, *site);
            }
            Effect::Mark(enter) => self.mark(buffer, thread, enter, details),
            Effect::Lost { .. } => {}
        }
        buffer.push(b'\n');
    }

    /// Prints a line for an interval in which the thread does not run.
    pub(super) fn wait(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, wait: &Wait) {
        self.banner(buffer, thread);
        self.begin(buffer, thread, wait.from);
        self.duration(buffer, None);
        indent(buffer, wait.depth);
        buffer.extend_from_slice(wait.text(self.source).as_bytes());
        buffer.push(b'\n');
    }

    /// Appends the columns before the duration.
    fn begin(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, now: u64) {
        if let Some(stamp) = self.time {
            buffer.extend_from_slice(format!("{:>12} |  ", stamp.at(self.source.to_ns(now))).as_bytes());
        }
        buffer.extend_from_slice(self.task(thread).as_bytes());
    }

    fn enter(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, enter: &Enter, details: &EventDetails<'_>) {
        let EventDetails { values, leaf, .. } = *details;
        self.duration(buffer, leaf.map(|(end, _)| end - enter.ticks));
        indent(buffer, enter.depth);
        if values.is_empty() {
            self.function(buffer, enter.site, true);
        } else {
            let arguments = self.values(thread, enter.ticks, enter.site, false, values);
            self.call(buffer, enter.site, &arguments);
        }
        buffer.extend_from_slice(if leaf.is_some() { b";" } else { b" {" });
        if let Some((end, results)) = leaf {
            let results = self.values(thread, end, enter.site, true, results);
            push_results(buffer, &results);
        }
        if enter.is_rest {
            buffer.extend_from_slice(b" /* resumed */");
        }
        self.caller(buffer, thread, enter);
        self.line_of(buffer, enter.site);
    }

    fn close(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, call: &Closed, details: &EventDetails<'_>) {
        self.end(buffer, call);
        indent(buffer, call.depth);
        buffer.push(b'}');
        if self.tail {
            self.comment(buffer, call.site);
        }
        if call.ending.is_cut() {
            buffer.extend_from_slice(format!(" /* {} */", call.ending.name()).as_bytes());
        } else {
            let own = if call.ending == Ending::Returned { details.values } else { &[] };
            let results = self.values(thread, call.end, call.site, true, own);
            push_results(buffer, &results);
        }
        self.spent(buffer, details.spent);
    }

    /// Prints a call whose return is not recorded.
    fn mark(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, enter: &Enter, details: &EventDetails<'_>) {
        self.duration(buffer, None);
        indent(buffer, enter.depth);
        buffer.extend_from_slice(b"/* ");
        let arguments = self.values(thread, enter.ticks, enter.site, false, details.values);
        if arguments.is_empty() {
            self.function(buffer, enter.site, false);
        } else {
            self.call(buffer, enter.site, &arguments);
        }
        if enter.parent != 0 {
            buffer.extend_from_slice(b" <-");
            let caller = self.symbols.caller(thread, enter.ticks, enter.parent);
            buffer.extend_from_slice(one_line(caller).as_bytes());
        }
        buffer.extend_from_slice(b" */");
        self.line_of(buffer, enter.site);
    }

    /// Prints the source line of a function, if it is wanted and known.
    fn line_of(&self, buffer: &mut Vec<u8>, site: SiteId) {
        let Some((of, cell)) = self.source_line.zip(self.lines.get(site.0 as usize)) else { return };
        let text = cell.get_or_init(|| match of(self.source.meta(), site) {
            Some(line) => format!(" /* {} */", one_line(&line)),
            None => String::new(),
        });
        buffer.extend_from_slice(text.as_bytes());
    }

    fn banner(&mut self, buffer: &mut Vec<u8>, thread: ThreadId) {
        if self.last == Some(thread) {
            return;
        }
        let Some(last) = self.last.replace(thread) else { return };
        buffer.extend_from_slice(BAR);
        buffer.push(b' ');
        buffer.extend_from_slice(self.task(last).trim_end_matches(BEHIND_TASK).as_bytes());
        buffer.extend_from_slice(b" => ");
        buffer.extend_from_slice(self.task(thread).trim_end_matches(BEHIND_TASK).as_bytes());
        buffer.push(b'\n');
        buffer.extend_from_slice(BAR);
        buffer.push(b'\n');
    }

    /// Returns the task column: the name, cut to 7 characters, and the id, centred in 14; then the
    /// separator.
    #[inline]
    fn task(&mut self, thread: ThreadId) -> &str {
        let text = &mut self.tasks[thread.0 as usize];
        if text.is_empty() {
            let comm: String = one_line(self.names.comm(thread)).chars().take(7).collect();
            *text = format!("{:^14}{BEHIND_TASK}", format!("{comm}-{}", self.names.tid(thread)));
        }
        text
    }

    fn values(
        &mut self,
        thread: ThreadId,
        ticks: u64,
        site: SiteId,
        returns: bool,
        bytes: &[u8],
    ) -> Vec<FormattedValue> {
        let symbols = &mut self.symbols;
        values::show(self.source, site, returns, bytes, &mut |address| symbols.code(thread, ticks, address))
    }

    fn call(&self, buffer: &mut Vec<u8>, site: SiteId, arguments: &[FormattedValue]) {
        if arguments.is_empty() {
            return self.function(buffer, site, true);
        }
        buffer.extend_from_slice(call(self.names, site, arguments).as_bytes());
    }

    fn function(&self, buffer: &mut Vec<u8>, site: SiteId, call: bool) {
        let known = self.functions.get(site.0 as usize).or(self.functions.last());
        let Some((text, length)) = known.map(|cell| cell.get_or_init(|| self.called(site))) else { return };
        let (name, parentheses) = text.split_at(*length);
        let parentheses = if call { parentheses } else { "" };
        // The name is followed by `() {`.
        let room = self.width.map(|width| width.saturating_sub(used(buffer) + parentheses.len() + 2));
        match room.filter(|room| colours::width(name) > *room) {
            Some(room) => {
                let has_list = fitted(name, room).ends_with(')');
                buffer.extend_from_slice(colours::map(name, |name| fitted(name, room)).as_bytes());
                buffer.extend_from_slice(if has_list { "" } else { parentheses }.as_bytes());
            }
            None => [name, parentheses].iter().for_each(|part| buffer.extend_from_slice(part.as_bytes())),
        }
    }

    /// Returns a function's name with parentheses, and the length of the name alone.
    fn called(&self, site: SiteId) -> (String, usize) {
        let mut text = self.names.shown(site);
        let length = text.len();
        // C++ names contain their parameter lists.
        let name = self.names.marked(site);
        if without_parameters(&name) == name {
            text.push_str("()");
        }
        (text, length)
    }

    fn comment(&self, buffer: &mut Vec<u8>, site: SiteId) {
        buffer.extend_from_slice(b" /* ");
        self.function(buffer, site, false);
        buffer.extend_from_slice(b" */");
    }

    fn spent(&self, buffer: &mut Vec<u8>, spent: &[Share]) {
        for (number, share) in spent.iter().enumerate() {
            buffer.extend_from_slice(if number == 0 { b" /* " } else { b", " });
            buffer.extend_from_slice(format!("{:.1} % ", share.percent).as_bytes());
            match share.site {
                Some(site) => self.function(buffer, site, false),
                None => buffer.extend_from_slice(b"itself"),
            }
            if share.calls > 1 {
                buffer.extend_from_slice(format!(" ({} calls)", share.calls).as_bytes());
            }
        }
        if !spent.is_empty() {
            buffer.extend_from_slice(b" */");
        }
    }

    fn caller(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, enter: &Enter) {
        if enter.parent != 0 {
            buffer.extend_from_slice(b" /* <-");
            let caller = self.symbols.caller(thread, enter.ticks, enter.parent);
            buffer.extend_from_slice(one_line(caller).as_bytes());
            buffer.extend_from_slice(b" */");
        }
    }

    /// Appends the duration of a call that ended; a call that was cut has none.
    fn end(&self, buffer: &mut Vec<u8>, call: &Closed) {
        if self.durations && call.ending.is_cut() {
            buffer.extend_from_slice(b"  ~           |  ");
        } else {
            self.duration(buffer, Some(call.total));
        }
    }

    fn duration(&self, buffer: &mut Vec<u8>, ticks: Option<u64>) {
        if self.durations {
            match ticks {
                Some(ticks) => push_duration(buffer, self.source.duration_ns(ticks)),
                None => buffer.extend_from_slice(b"              "),
            }
            buffer.extend_from_slice(b"|  ");
        }
    }
}

/// Returns the number of characters of the last line in a buffer.
fn used(buffer: &[u8]) -> usize {
    let start = buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    colours::width(&String::from_utf8_lossy(&buffer[start..]))
}

/// Returns a call as `f(a=1, b=2)`, with the name in its colour.
pub(super) fn call(names: &Names<'_>, site: SiteId, arguments: &[FormattedValue]) -> String {
    if arguments.is_empty() {
        return names.shown(site);
    }
    let name = names.marked(site);
    let name = names.painted(site, one_line(values::without_parameters(&name)));
    format!("{name}({})", values::list(arguments))
}

fn push_results(buffer: &mut Vec<u8>, results: &[FormattedValue]) {
    if !results.is_empty() {
        buffer.extend_from_slice(format!(" /* {} */", values::results(results)).as_bytes());
    }
}

/// Prints `TASK:comm-tid [LOST n EVENTS]`.
pub(super) fn lost(buffer: &mut Vec<u8>, names: &Names<'_>, thread: ThreadId, events: u64) {
    let task = names.task(thread);
    buffer.extend_from_slice(format!("TASK:{} [LOST {events} EVENTS]\n", one_line(&task)).as_bytes());
}

fn indent(buffer: &mut Vec<u8>, depth: u32) {
    buffer.resize(buffer.len() + 2 * (depth as usize).min(INDENT), b' ');
}

/// Appends overhead mark and duration, 14 columns: at most 7 digits, microseconds.
fn push_duration(buffer: &mut Vec<u8>, ns: u64) {
    let mark = match ns {
        1_000_000_001.. => b'$',
        100_000_001.. => b'@',
        10_000_001.. => b'*',
        1_000_001.. => b'#',
        100_001.. => b'!',
        10_001.. => b'+',
        _ => b' ',
    };
    buffer.extend_from_slice(&[mark, b' ']);
    let start = buffer.len();
    push_decimal(buffer, ns / 1000);
    let digits = buffer.len() - start;
    if digits < 7 {
        let rest = ns % 1000;
        let decimals = [b'0' + (rest / 100) as u8, b'0' + (rest / 10 % 10) as u8, b'0' + (rest % 10) as u8];
        buffer.push(b'.');
        buffer.extend_from_slice(&decimals[..(7 - digits).min(3)]);
    }
    let used = buffer.len() - start;
    buffer.extend_from_slice(b" us ");
    buffer.resize(buffer.len() + 8usize.saturating_sub(used), b' ');
}

#[cfg(test)]
mod tests {
    use super::push_duration;

    #[test]
    fn durations_have_the_kernels_width() {
        let cases = [
            (4_060, "  4.060 us    "),
            (10_000, "  10.000 us   "),
            (25_685, "+ 25.685 us   "),
            (314_807, "! 314.807 us  "),
            (1_150_291, "# 1150.291 us "),
            (19_281_490, "* 19281.49 us "),
            (123_456_789, "@ 123456.7 us "),
            (10_000_000_000, "$ 10000000 us "),
            (0, "  0.000 us    "),
        ];
        for (ns, text) in cases {
            let mut buffer = Vec::new();
            push_duration(&mut buffer, ns);
            assert_eq!(String::from_utf8(buffer).unwrap(), text);
        }
    }
}
