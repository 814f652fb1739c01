//! The texts that describe pages and records to readers, as the kernel has them in `events/`.

/// `events/header_page`.
pub const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

/// `events/header_event`.
pub const HEADER_EVENT: &str = "# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp  : type == 31
\tdata max type_len  == 28
";

/// An event: its name, and `events/ftrace/NAME/format`.
pub type Event = (&'static str, &'static str);

macro_rules! event {
    ($name:literal, $id:literal, $fields:literal, $print:literal) => {
        (
            $name,
            concat!(
                "name: ",
                $name,
                "\nID: ",
                $id,
                "\nformat:\n",
                "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n",
                "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n",
                "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n",
                "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n",
                $fields,
                "\nprint fmt: ",
                $print,
                "\n"
            ),
        )
    };
}

/// The events of the system `sched`: see [`crate::record::sched_switch`] and
/// [`crate::record::sched_waking`].
pub const SCHED: [Event; 2] = [SCHED_SWITCH, SCHED_WAKING];

const SCHED_WAKING: Event = event!(
    "sched_waking",
    318,
    "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n",
    "\"comm=%s pid=%d prio=%d target_cpu=%03d\", REC->comm, REC->pid, REC->prio, REC->target_cpu"
);

const SCHED_SWITCH: Event = event!(
    "sched_switch",
    314,
    "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n",
    "\"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s ==> next_comm=%s next_pid=%d next_prio=%d\", REC->prev_comm, REC->prev_pid, REC->prev_prio, REC->prev_state ? __print_flags(REC->prev_state, \"|\", { 0x01, \"S\" }, { 0x02, \"D\" }) : \"R\", REC->next_comm, REC->next_pid, REC->next_prio"
);

/// The events of [`crate::record`] that the tracers write.
pub const EVENTS: [Event; 7] = [
    event!(
        "function",
        1,
        "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned long parent_ip;\toffset:16;\tsize:8;\tsigned:0;\n",
        "\" %ps <-- %ps\", (void *)REC->ip, (void *)REC->parent_ip"
    ),
    event!(
        "kernel_stack",
        4,
        "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[];\toffset:16;\tsize:0;\tsigned:0;\n",
        "\"\\t=> %ps\\n\\t=> %ps\\n\", (void *)REC->caller[0], (void *)REC->caller[1]"
    ),
    event!(
        "print",
        5,
        "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:char buf[];\toffset:16;\tsize:0;\tsigned:0;\n",
        "\"%ps: %s\", (void *)REC->ip, REC->buf"
    ),
    event!(
        "funcgraph_exit",
        10,
        "\tfield:unsigned long func;\toffset:8;\tsize:8;\tsigned:0;
\tfield:int depth;\toffset:16;\tsize:4;\tsigned:1;
\tfield:unsigned int overrun;\toffset:20;\tsize:4;\tsigned:0;
\tfield:unsigned long long calltime;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long long rettime;\toffset:32;\tsize:8;\tsigned:0;\n",
        "\"<-- %ps (%d) (start: %llx  end: %llx) over: %u\", (void *)REC->func, REC->depth, REC->calltime, REC->rettime, REC->overrun"
    ),
    event!(
        "funcgraph_entry",
        11,
        "\tfield:unsigned long func;\toffset:8;\tsize:8;\tsigned:0;
\tfield:int depth;\toffset:16;\tsize:4;\tsigned:1;\n",
        "\"--> %ps (%d)\", (void *)REC->func, REC->depth"
    ),
    event!(
        "raw_data",
        18,
        "\tfield:unsigned int id;\toffset:8;\tsize:4;\tsigned:0;
\tfield:char buf[];\toffset:12;\tsize:0;\tsigned:0;\n",
        "\"id:%04x %08x\", REC->id, (int)REC->buf[0]"
    ),
    event!(
        "func_repeats",
        19,
        "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned long parent_ip;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned short count;\toffset:24;\tsize:2;\tsigned:0;
\tfield:unsigned short top_delta_ts;\toffset:26;\tsize:2;\tsigned:0;
\tfield:unsigned int bottom_delta_ts;\toffset:28;\tsize:4;\tsigned:0;\n",
        "\" %ps <-%ps\\t(repeats:%u  delta: -%llu)\", (void *)REC->ip, (void *)REC->parent_ip, REC->count, (((unsigned long long)REC->top_delta_ts << 32) | REC->bottom_delta_ts)"
    ),
];
