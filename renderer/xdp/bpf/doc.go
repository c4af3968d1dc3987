// Package bpf has the kernel program of the XDP renderer, and the Go types of its maps. The program
// is a classifier that reads the policy map of package compile. It has an entry point for every
// place where the kernel can call it.
//
// # Place in the flow
//
// It is the last step before the network. Package xdp loads the objects, fills the maps policy and
// endpts, and attaches from_pod and to_pod (TCX, clsact) or the XDP programs.
//
// # Invariants
//
//   - The headers of src are the only source of the classifier: also of that in ordinary programs,
//     for which src/program.h takes the place of src/kernel.h.
//   - src/kernel.h declares what the kernel offers, so that the objects do not depend on
//     installed headers: clang-14 makes the same bytes everywhere, see make generate.
//   - src/policymap.h has the numbers of compile/layout.go; a test compares them.
//   - A packet is read within the lengths that its headers claim, never beyond them.
//   - Denied packets leave no state.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package bpf -no-global-types -type event -type bucket -type history -type event_filter -type active_flows -type share -type quota -type reach -type fragment_key -type fragment -cflags "-O2 -g -Wall -Werror -mcpu=v3" Sluice src/sluice.bpf.c
