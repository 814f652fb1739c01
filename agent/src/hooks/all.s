# All hooks, for each clock, and the shims that they call.

.text
.globl calltap_hook
.type calltap_hook, @function
calltap_hook:
    tap_shim calltap_record_shim {record_slow}
    tap_small_shim calltap_small_record_shim {record_slow}
    tap_small_shim calltap_small_profile_shim {profile_slow}
    tap_small_shim calltap_small_go_shim {record_goroutine} 1
    tap_small_shim calltap_small_values_shim {read_go_values} 2
    tap_shim calltap_shadow_shim {shadow_slow}
    tap_shim calltap_profile_shim {profile_slow}
    tap_shim calltap_first_shim {first_slow}
    tap_shim calltap_values_shim {read_values} 1
    tap_shim calltap_loader_shim {loader_changed}
    tap_shim calltap_nonlocal_shim {nonlocal_exit}

# Offsets of return addresses in the stub are 5 (entry), 7 (function, and where exits are
# rewritten), 6 (after a prologue), 16 (exit); the last numbers of a line turn them into the event
# codes ENTRY 5, CALL 6, ENTRY_FROM 7, TAIL_ENTRY 17, TAIL_ENTRY_FROM 18.
.macro tap_hooks clock
    # arguments: name and clock; after a prologue, event, profile, caller, and the two differences
    tap_call calltap_hook_f_\clock \clock 0 1
    tap_small calltap_hook_small_f_\clock \clock 0 1 0 1
    tap_small calltap_hook_small_p_\clock \clock 0 0 1
    tap_small calltap_hook_small_fp_\clock \clock 0 1 1 1
    tap_small calltap_hook_mcount_small_f_\clock \clock 1 1 0
    tap_small calltap_hook_mcount_small_p_\clock \clock 1 0 1
    tap_small calltap_hook_mcount_small_fp_\clock \clock 1 1 1
    tap_entry calltap_hook_g_\clock \clock 0 1 0 0 0 20
    tap_entry calltap_hook_fg_\clock \clock 0 1 0 1 2 23
    tap_entry calltap_hook_p_\clock \clock 0 0 1 0 0 0
    tap_entry calltap_hook_fp_\clock \clock 0 1 1 1 3 3
    tap_entry calltap_hook_gp_\clock \clock 0 1 1 0 0 20
    tap_entry calltap_hook_fgp_\clock \clock 0 1 1 1 2 23
    tap_call calltap_hook_mcount_f_\clock \clock 1 0
    tap_entry calltap_hook_mcount_g_\clock \clock 1 1 0 0 3 23
    tap_entry calltap_hook_mcount_fg_\clock \clock 1 1 0 1 1 20
    tap_entry calltap_hook_mcount_p_\clock \clock 1 0 1 0 0 0
    tap_entry calltap_hook_mcount_fp_\clock \clock 1 1 1 1 0 0
    tap_entry calltap_hook_mcount_gp_\clock \clock 1 1 1 0 3 23
    tap_entry calltap_hook_mcount_fgp_\clock \clock 1 1 1 1 1 20
    tap_exit calltap_hook_exit_g_\clock \clock 1 0
    tap_exit calltap_hook_exit_p_\clock \clock 0 1
    tap_exit calltap_hook_exit_gp_\clock \clock 1 1
    tap_enter calltap_hook_enter_g_\clock \clock 1 0 0 2 22
    tap_enter calltap_hook_enter_fg_\clock \clock 1 0 1 0 21
    tap_enter calltap_hook_enter_p_\clock \clock 0 1 0 0 0
    tap_enter calltap_hook_enter_fp_\clock \clock 1 1 1 1 1
    tap_enter calltap_hook_enter_gp_\clock \clock 1 1 0 2 22
    tap_enter calltap_hook_enter_fgp_\clock \clock 1 1 1 0 21
    tap_leave calltap_hook_leave_g_\clock \clock 1 0
    tap_leave calltap_hook_leave_p_\clock \clock 0 1
    tap_leave calltap_hook_leave_gp_\clock \clock 1 1
.endm

.macro tap_values_of wanted clock tail
    tap_values calltap_hook_v\wanted\()_\clock calltap_hook_\wanted\()_\clock 0 \tail
    tap_values calltap_hook_mcount_v\wanted\()_\clock calltap_hook_mcount_\wanted\()_\clock 1 0
.endm

.macro tap_values_enter_of wanted clock
    tap_values calltap_hook_enter_v\wanted\()_\clock calltap_hook_enter_\wanted\()_\clock 0 0 1
.endm

.macro tap_values_exit_of wanted clock
    tap_values_exit calltap_hook_exit_v\wanted\()_\clock calltap_hook_exit_\wanted\()_\clock
    tap_values_leave calltap_hook_leave_v\wanted\()_\clock calltap_hook_leave_\wanted\()_\clock
.endm

.macro tap_values_hooks clock
    tap_values_of f \clock 0
    .irp wanted, g, fg, p, fp, gp, fgp
        tap_values_of \wanted \clock 1
        tap_values_enter_of \wanted \clock
    .endr
    .irp wanted, g, p, gp
        tap_values_exit_of \wanted \clock
    .endr
.endm

    .irp clock, 0, 1, 2, 3
        tap_go_lost \clock
        tap_python_call \clock
        tap_python_return \clock
        tap_python_enter \clock
        tap_python_leave \clock
        tap_nonlocal \clock
        tap_prctl \clock
    .endr
    tap_hooks 0
    tap_hooks 1
    tap_hooks 2
    tap_hooks 3
    tap_go_hooks 0
    tap_go_entries 1
    tap_go_entries 2
    tap_go_hooks 3
    tap_go_values_hooks 0
    tap_go_values_hooks 3
    tap_values_hooks 0
    tap_values_hooks 1
    tap_values_hooks 2
    tap_values_hooks 3
