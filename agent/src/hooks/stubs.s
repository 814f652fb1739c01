# The stub region: twice its size, so that an aligned half can be chosen. One unwinding rule covers
# every stub, by the offset of the pc:
#   at 5 and 11: rsp = S+8, return address in shadow[S]
#   at 13 and 18: rsp = S-136, below the red zone
#   elsewhere: rsp = S (or the site's own call), return address in [rsp]
# The CFA is that of the body's frame: the caller's frame is seen through the stub as without it, by
# personality routines that look for their state there (LuaJIT's). Two frames with one CFA are the
# same to libgcc's phase 2, but for the flag of a signal frame, which the frame above has by this
# rule. The return address of a signal frame is where it was interrupted: one byte before the end of
# the call.
.section .calltap.stubs,"ax",@nobits
.globl calltap_stub
.type calltap_stub, @function
calltap_stub:
    .cfi_startproc
    .cfi_signal_frame
# flag = ((rip & 31) == 5) | ((rip & 31) == 11)
# deep = ((rip & 31) == 13) | ((rip & 31) == 18)
# CFA = rsp + 8 - 8*flag + 136*deep
    .cfi_escape 0x0f, 31, 0x77, 8, 0x80, 0, 0x4f, 0x1a, 0x12, 0x35, 0x29, 0x16, 0x3b, 0x29, 0x21, 0x33, 0x24, 0x1c, 0x80, 0, 0x4f, 0x1a, 0x12, 0x3d, 0x29, 0x16, 0x42, 0x29, 0x21, 0x08, 136, 0x1e, 0x22
# RA = *(flag ? (rsp - 8) ^ 1<<44 : rsp + 136*deep) - 1
    .cfi_escape 0x16, 0x10, 49, 0x80, 0, 0x4f, 0x1a, 0x12, 0x35, 0x29, 0x16, 0x3b, 0x29, 0x21, 0x28, 20, 0, 0x77, 0, 0x80, 0, 0x4f, 0x1a, 0x12, 0x3d, 0x29, 0x16, 0x42, 0x29, 0x21, 0x08, 136, 0x1e, 0x22, 0x2f, 12, 0, 0x77, 0x78, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27, 0x06, 0x31, 0x1c
    .skip 2 * {region}
    .cfi_endproc
.size calltap_stub, . - calltap_stub
.section .calltap.shadow,"a",@nobits
.globl calltap_shadow
.hidden calltap_shadow
calltap_shadow: .skip {shadow_size}
.text
