// Command xdp measures what a packet costs in the kernel, with the classifier of the XDP
// renderer and with small re-creations of the hot paths of other designs, in one run. It
// needs root and prints Markdown.
//
//	go run -C tests/bench/xdp . > table.md
//
// It is a module of its own, so that builds of Sluice do not compile the other designs.
//
// # Invariants
//
//   - Every figure is the least of several short runs, minus that of a program that only writes the
//     flow into the packet, measured in the same run.
//   - What other designs do besides the lookups is left out: the real products do more.
package main

//go:generate clang-14 -O2 -g -Wall -Werror -mcpu=v3 -fno-ident -fdebug-compilation-dir . -target bpfel -c src/bench.bpf.c -o bench_bpfel.o
//go:generate llvm-strip-14 -g bench_bpfel.o
