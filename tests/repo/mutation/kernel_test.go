package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const kernelObject = kernelPackage + "/sluice_bpfel.o"

// compiled is the object of the kernel's program with a source changed, "" to leave it as it is.
func compiled(t *testing.T, f Fault) []byte {
	t.Helper()
	tr, err := openTree(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.File)))
	if err != nil {
		t.Fatal(err)
	}
	if f.Was != "" {
		if source, err = f.apply(source); err != nil {
			t.Fatal(err)
		}
	}
	files, err := tr.program(t.Context(), f.File, source, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	object, err := os.ReadFile(files[kernelObject])
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func TestKernelProgramIsCompiledApart(t *testing.T) {
	if _, err := exec.LookPath("clang-14"); err != nil {
		t.Skip("no clang-14")
	}
	if testing.Short() {
		t.Skip("compiles the program three times")
	}
	want, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(kernelObject)))
	if err != nil {
		t.Fatal(err)
	}
	f := Fault{File: kernelSources + "/packet.h"}
	if !bytes.Equal(compiled(t, f), want) {
		t.Error("without a fault the object is not that of the tree")
	}
	f.Was, f.Now = "type == 3 ||", "type == 4 ||"
	if bytes.Equal(compiled(t, f), want) {
		t.Error("with a fault the object is that of the tree")
	}
}

func TestFaultsOfKernelAreSkippedWithoutRoot(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	in, other := Fault{File: kernelSources + "/packet.h"}, Fault{File: kernelPackage + "/inplace.go"}
	var said strings.Builder
	got, err := possible([]Fault{in, other, in}, &said)
	if err != nil || len(got) != 1 || got[0] != other || !strings.Contains(said.String(), "leaving out 2 faults") || !strings.Contains(said.String(), "clang-14") {
		t.Errorf("%v are left, %v: %s", got, err, said.String())
	}
	if _, err := possible([]Fault{in}, &said); err == nil || !strings.Contains(err.Error(), "clang-14") {
		t.Errorf("nothing but such faults: %v", err)
	}
	if got, err := possible([]Fault{other}, &said); err != nil || len(got) != 1 {
		t.Errorf("other faults: %v, %v", got, err)
	}
}

func TestSuitesOfKernelAreForItsAreaOnly(t *testing.T) {
	r := &runner{tree: tree{module: "example.test/m"}}
	all := map[string]bool{"example.test/m/" + kernelPackage: true}
	for _, tt := range []struct {
		area, file string
		kernel     bool
	}{
		{"kernel", kernelSources + "/packet.h", true},
		{"kernel", kernelPackage + "/inplace.go", true},
		{"xdp", kernelPackage + "/inplace.go", false},
	} {
		a := attempt{runner: r, fault: Fault{Area: tt.area, File: tt.file}}
		for _, kernel := range []bool{true, false} {
			c := &contestant{Suite: Suite{Folder: "tests", Kernel: kernel}, contents: all}
			if got := a.concerns(c); got != (kernel == tt.kernel) {
				t.Errorf("%s of %s concerns %s: %v", tt.file, tt.area, c.name(), got)
			}
			if env := strings.Join(r.invoke(c, "", short, 0).environment(), " "); strings.Contains(env, "SLUICE_NO_KERNEL=1") == kernel {
				t.Errorf("%s runs with %s", c.name(), env)
			}
		}
	}
}
