package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The classifier in the kernel is a program in C. Its package says by go:generate how it is
// compiled; what comes out is in the tree.
const (
	kernelPackage = "renderer/xdp/bpf"
	kernelSources = kernelPackage + "/src"
	kernelArea    = "kernel"
)

// inKernel reports whether the fault is in the program of the kernel.
func (f Fault) inKernel() bool { return f.isOf(kernelSources) }

// ofPackets reports whether only packets in the kernel show the fault. Those are the faults of one
// area: all that are in the program, and some in the code that shares its maps.
func (f Fault) ofPackets() bool { return f.Area == kernelArea }

// program compiles the kernel's program with one of its sources changed, and returns what came out,
// by what it is in the place of. It is done where nothing else of the module is, so that the tree
// is not touched.
func (t tree) program(ctx context.Context, file string, source []byte, dir string) (map[string]string, error) {
	copied := []string{"go.mod", "go.sum", kernelPackage + "/doc.go"}
	sources, err := os.ReadDir(filepath.Join(t.root, filepath.FromSlash(kernelSources)))
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		copied = append(copied, kernelSources+"/"+s.Name())
	}
	apart := filepath.Join(dir, "module")
	if err := os.MkdirAll(filepath.Join(apart, filepath.FromSlash(kernelSources)), 0o700); err != nil {
		return nil, err
	}
	for _, name := range copied {
		text, err := os.ReadFile(filepath.Join(t.root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		if name == file {
			text = source
		}
		if err := os.WriteFile(filepath.Join(apart, filepath.FromSlash(name)), text, 0o600); err != nil {
			return nil, err
		}
	}
	if _, err := goCommand(ctx, apart, "generate", "./"+kernelPackage); err != nil {
		return nil, &buildError{err}
	}
	return made(apart)
}

// made lists what go generate wrote.
func made(module string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(module, filepath.FromSlash(kernelPackage), "*_bpfel.*"))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, p := range paths {
		out[kernelPackage+"/"+filepath.Base(p)] = p
	}
	return out, nil
}

// needs returns what is missing for faults in the kernel's program; nil: nothing.
func needs() error {
	var missing []string
	for _, tool := range []string{"clang-14", "llvm-strip-14"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if os.Getuid() != 0 {
		missing = append(missing, "root")
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New("missing: " + strings.Join(missing, ", "))
}

// possible returns the faults that can be tried here, and reports the others.
func possible(faults []Fault, progress io.Writer) ([]Fault, error) {
	missing := needs()
	if missing == nil || !slices.ContainsFunc(faults, Fault.inKernel) {
		return faults, nil
	}
	out := slices.DeleteFunc(slices.Clone(faults), Fault.inKernel)
	if len(out) == 0 {
		return nil, fmt.Errorf("faults in the program of the kernel cannot be tried: %w", missing)
	}
	_, err := fmt.Fprintf(progress, "leaving out %d faults in the program of the kernel: %v\n", len(faults)-len(out), missing)
	return out, err
}
