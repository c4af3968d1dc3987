package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Suite is one package of tests.
type Suite struct {
	Folder string // from the root of the module
	// Only is the folder or the area of the faults that the suite is for; empty is all. Every suite
	// is besides skipped for faults in packages that it does not contain.
	Only string
	// Kernel says that packets run through the program in the kernel. Such a suite is for the
	// faults that these show, and no other is.
	Kernel bool
	// Long matches tests that a run with -short leaves out besides: they take long, and are about
	// other things.
	Long string
}

// name identifies the suite in reports.
func (s Suite) name() string {
	if s.Kernel {
		return s.Folder + " (kernel)"
	}
	return s.Folder
}

// harness is every suite that may catch a fault.
var harness = []Suite{
	{Folder: "tests/spec/scenarios"},
	{Folder: "tests/spec/sequences"},
	{Folder: "tests/spec/differential"},
	{Folder: "tests/spec/conformance/replay"},
	{Folder: "plugins/policy", Only: "plugins/policy"},
	{Folder: "renderer/acl"},
	{Folder: "renderer/acl/internal/memory", Only: "renderer/acl/internal/memory"},
	{Folder: "renderer/session", Only: "renderer/session"},
	{Folder: "renderer/xdp", Only: "renderer/xdp"},
	{Folder: "renderer/xdp/compile", Only: "renderer/xdp/compile"},
	{Folder: "renderer/cache", Only: "renderer/cache"},
	{Folder: "renderer/internal/capacity", Only: "renderer/internal/capacity"},
	{Folder: "internal/analysis/oracle", Only: "internal/analysis/oracle"},
	{Folder: "plugins/endpoints", Only: "endpoints"},
	{Folder: "plugins/policy/internal/cache", Only: "cni"},
	{Folder: "internal/cni/install", Only: "cni"},
	{Folder: "plugins/statefile", Only: "state"},
	{Folder: "plugins/ksr/convert", Only: "state"},
	{Folder: "internal/manifests", Only: "state"},
	{Folder: "plugins/ksr/reflect", Only: "state"},
	{Folder: "plugins/follow", Only: "state"},
	{Folder: "plugins/datasync", Only: "state"},
	{Folder: "plugins/kvstore", Only: "state"},
	{Folder: "internal/reflector", Only: "state"},
	{Folder: "internal/agent", Only: "state"},
	{Folder: "internal/agent/cluster", Only: "internal/agent/cluster"},
	{Folder: "internal/agent/nodestatus", Only: "internal/agent/nodestatus"},
	{Folder: "internal/kvstore/embedded", Only: "internal/kvstore/embedded"},
	{Folder: "internal/lib/serve", Only: "surfaces"},
	{Folder: "internal/lib/preflight", Only: "surfaces"},
	{Folder: "internal/lib/term", Only: "surfaces"},
	{Folder: "internal/cli", Only: "surfaces"},
	{Folder: "tests/dataplane/attacks", Kernel: true, Long: "HostilePods"},
	{Folder: "tests/spec/scenarios", Kernel: true},
	{Folder: "renderer/xdp", Kernel: true, Long: "Heap|Changes|Mode|Interface|Filters|Grows|Settings|Pairs?|Restarts"},
}

// tree is a module whose tests are built.
type tree struct {
	root   string // folder of go.mod
	module string
}

// openTree finds the module that a folder is in.
func openTree(ctx context.Context, dir string) (tree, error) {
	out, err := goCommand(ctx, dir, "list", "-m", "-f", "{{.Path}}\n{{.Dir}}")
	if err != nil {
		return tree{}, err
	}
	module, root, ok := strings.Cut(strings.TrimSpace(out), "\n")
	if !ok {
		return tree{}, fmt.Errorf("go list -m says %q", out)
	}
	return tree{root: root, module: module}, nil
}

// goCommand runs the go command and returns what it prints; what it complains about is
// in the error.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, strings.TrimSpace(complaints.String()))
	}
	return out.String(), nil
}

// contents are the packages in the test binary of a suite, by import path.
func (t tree) contents(ctx context.Context, s Suite) (map[string]bool, error) {
	out, err := goCommand(ctx, t.root, "list", "-deps", "-test", "-f", "{{.ImportPath}}", "./"+s.Folder)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for line := range strings.Lines(out) {
		pkg, _, _ := strings.Cut(strings.TrimSpace(line), " ") // "pkg [pkg.test]"
		found[pkg] = true
	}
	return found, nil
}

// packageOf is the import path of the package that a fault is in.
func (t tree) packageOf(f Fault) string { return path.Join(t.module, f.folder()) }

// overlay writes what a fault makes of the tree and the overlay that puts it in its place.
func (t tree) overlay(ctx context.Context, f Fault, dir string) (string, error) {
	source, err := f.read(t.root)
	if err != nil {
		return "", err
	}
	changed := map[string]string{f.File: filepath.Join(dir, "mutated.go")} // by what it is put in the place of
	if f.inKernel() {
		changed, err = t.program(ctx, f.File, source, dir)
	} else {
		err = os.WriteFile(changed[f.File], source, 0o600)
	}
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, by := range changed {
		replace[filepath.Join(t.root, filepath.FromSlash(file))] = by
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// build compiles the tests of a folder, with an overlay unless it is empty, and returns
// the binary. Packages that the fault does not reach come from the build cache, and so
// do the others for the second suite.
func (t tree) build(ctx context.Context, folder, overlay, dir string) (string, error) {
	binary := filepath.Join(dir, strings.ReplaceAll(folder, "/", "-")+".test")
	_, err := goCommand(ctx, t.root, "test", "-c", "-ldflags=-w", "-overlay="+overlay, "-o", binary, "./"+folder)
	return binary, err
}
