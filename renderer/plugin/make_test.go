package plugin_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// builder is a machine with programs and trees of its own.
type builder struct {
	testing.TB
	bin, root string
}

// file makes a file, which may be a program that does nothing but what lines say.
func (b builder) file(path string, lines ...string) {
	b.Helper()
	program := strings.Join(append([]string{"#!/bin/sh"}, lines...), "\n") + "\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(program), 0o755)); err != nil {
		b.Fatal(err)
	}
}

// needs returns what the Makefile of the plugin says that it uses, or why it cannot build.
func (b builder) needs(variables ...string) string {
	b.Helper()
	makefile, err := filepath.Abs("src/Makefile")
	if err != nil {
		b.Fatal(err)
	}
	c := exec.CommandContext(b.Context(), "make", append([]string{"--no-print-directory", "-f", makefile, "OUT=" + b.root, "needs"}, variables...)...)
	c.Dir = filepath.Join(b.root, "here")
	c.Env = []string{"PATH=" + b.bin, "HOME=" + b.root + "/home", "LC_ALL=C"}
	out, _ := c.CombinedOutput()
	return string(out)
}

// TestMakeFindsCompilerAndBuild: VPP_SRC is given, or found by the vpp of tests or in a usual place;
// the build in it and a clang are found; what is missing is named,
// and so is the release.
func TestMakeFindsCompilerAndBuild(t *testing.T) {
	b := builder{t, t.TempDir(), t.TempDir()}
	for _, name := range []string{"make", "sh", "uname", "test", "echo", "sed"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("there is no %s", name)
		}
		if err := os.Symlink(path, filepath.Join(b.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	src := filepath.Join(b.root, "tree")
	b.file(filepath.Join(b.root, "here", "x"))
	says := func(want string, variables ...string) {
		t.Helper()
		if got := b.needs(variables...); !strings.Contains(got, want) {
			t.Errorf("%v: it says %q, want %q", variables, got, want)
		}
	}
	says("there are no sources of VPP: set VPP_SRC")
	says("there are no sources of VPP in "+src, "VPP_SRC="+src)
	b.file(filepath.Join(src, "src/vnet/vnet.h"))
	says("no build of VPP has vnet/interface.api_types.h", "VPP_SRC="+src)
	b.file(filepath.Join(src, "build-root/build-native/CMakeFiles/vnet/interface.api_types.h"))
	says("there is no clang", "VPP_SRC="+src)
	b.file(filepath.Join(b.bin, "clang-14"))
	says("no python3 has ply", "VPP_SRC="+src, "PYTHON=")
	b.file(filepath.Join(b.bin, "python3"))
	says("does not say which release of VPP this is", "VPP_SRC="+src)
	says("plugin for VPP 26.02,", "VPP_SRC="+src, "VPP_RELEASE=26.02")
	b.file(filepath.Join(src, "src/scripts/version"), "echo 25.10.1-23~g744d3c7159a")
	says("plugin for VPP 25.10,", "VPP_SRC="+src)
	native := src + "/build-root/build-native/CMakeFiles"
	says("vpp: "+src+", build: "+native+", compiler: clang-14", "VPP_SRC="+src)
	says("vpp: "+src+", build: "+native, "SLUICE_VPP_BIN="+src+"/build-root/build-native/bin/vpp")
	says("compiler: other", "VPP_SRC="+src, "CC=other")
	release := src + "/build-root/build-vpp-native/vpp"
	b.file(release + "/CMakeFiles/vnet/interface.api_types.h")
	says("build: "+release+"/CMakeFiles,", "VPP_SRC="+src)
	for _, given := range []string{src + "/build-root/build-native", native} {
		says("build: "+native+",", "VPP_SRC="+src, "VPP_BUILD="+given)
	}
	b.file(filepath.Join(b.root, "vpp/src/vnet/vnet.h"))
	says("no build of VPP has vnet/interface.api_types.h (looked in: " + b.root + "/vpp/")
}
