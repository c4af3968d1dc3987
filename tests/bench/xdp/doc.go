// Command xdp measures what a packet costs in the kernel, with the classifier of the XDP
// renderer and with small re-creations of the hot paths of other designs, in one run. It
// needs root and prints Markdown.
//
//	go run -C tests/bench/xdp . > table.md
//
// It is a module of its own, so that nobody compiles other designs who works on this one.
//
// # Invariants
//
//   - Every figure is the least of several short runs, less that of a program that only
//     writes the flow into the packet, measured in the same run.
//   - What other designs do beside the lookups is left out: products do more.
package main

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package main -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3" Bench src/bench.bpf.c
