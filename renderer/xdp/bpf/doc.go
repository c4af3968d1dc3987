// Package bpf has the program that the XDP renderer puts into the kernel: a classifier
// that reads the memory of package compile, with an entry for every place where the kernel
// can call it, and the Go types of its maps.
//
// # Place in the flow
//
// The last thing before the network: package xdp loads the objects, fills mem and ends,
// and attaches from_pod and to_pod (TCX, clsact) or the xdp programs.
//
// # Invariants
//
//   - src/kernel.h writes down what the kernel offers, so that the objects do not depend on
//     installed headers: clang-14 makes the same bytes everywhere, see make generate.
//   - src/memory.h has the numbers of compile/layout.go; a test compares them.
//   - A packet is read in what its headers claim to be, never behind it.
//   - Denied packets leave no state.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package bpf -no-global-types -type event -type bucket -type history -type telling -type crowd -type share -type quota -type reach -type fragment_key -type fragment -cflags "-O2 -g -Wall -Werror -mcpu=v3" Sluice src/sluice.bpf.c
