# The table of hooks, as offsets from the table itself, so that it needs no relocation; in the order
# of calltap_abi::stub's numbers.
.macro tap_offset name clock
    .long calltap_hook_\name\()_\clock - calltap_hook_table
.endm

.macro tap_row clock
    tap_offset f \clock; tap_offset g \clock; tap_offset fg \clock; tap_offset p \clock
    tap_offset fp \clock; tap_offset gp \clock; tap_offset fgp \clock
    tap_offset mcount_f \clock; tap_offset mcount_g \clock; tap_offset mcount_fg \clock; tap_offset mcount_p \clock
    tap_offset mcount_fp \clock; tap_offset mcount_gp \clock; tap_offset mcount_fgp \clock
    tap_offset exit_g \clock; tap_offset exit_p \clock; tap_offset exit_gp \clock
    .irp wanted, enter_g, enter_fg, enter_p, enter_fp, enter_gp, enter_fgp, leave_g, leave_p, leave_gp
        tap_offset \wanted \clock
    .endr
    .irp wanted, vf, vg, vfg, vp, vfp, vgp, vfgp, mcount_vf, mcount_vg, mcount_vfg, mcount_vp, mcount_vfp, mcount_vgp, mcount_vfgp, exit_vg, exit_vp, exit_vgp
        tap_offset \wanted \clock
    .endr
    .irp wanted, enter_vg, enter_vfg, enter_vp, enter_vfp, enter_vgp, enter_vfgp, leave_vg, leave_vp, leave_vgp
        tap_offset \wanted \clock
    .endr
    tap_offset small_f \clock; tap_offset small_p \clock; tap_offset small_fp \clock
    tap_offset mcount_small_f \clock; tap_offset mcount_small_p \clock; tap_offset mcount_small_fp \clock
    tap_offset go_f \clock; tap_offset go_g \clock; tap_offset go_fg \clock; tap_offset go_p \clock
    tap_offset go_fp \clock; tap_offset go_gp \clock; tap_offset go_fgp \clock; tap_offset go_leave \clock
    tap_offset python_call \clock; tap_offset python_return \clock; tap_offset python_enter \clock; tap_offset python_leave \clock
    tap_offset nonlocal \clock; tap_offset prctl \clock
    .irp wanted, f, g, fg, p, fp, gp, fgp, leave
        tap_offset go_v\wanted \clock
    .endr
    tap_offset go_lost \clock
.endm

.section .rodata.calltap_hook_table,"a"
.balign 4
.globl calltap_hook_table
.hidden calltap_hook_table
calltap_hook_table:
    tap_row 0; tap_row 1; tap_row 2; tap_row 3
