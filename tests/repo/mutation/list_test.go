package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the folder of the module.
const root = "../../.."

// areas that must be there, each with some faults.
var areas = []string{
	"selector", "port", "cidr", "isolation", "order", "direction", "named-port", "set", "incremental",
	"combine", "install", "conversion", "dataplane", "oracle", "tier", "session", "xdp", "kernel", "state", "endpoints", "cni", "surfaces", "batch",
}

// The components that must have faults.
var rooms = []string{
	"plugins/ksr/convert", "plugins/ksr/reflect", "plugins/policy/internal/cache", "plugins/policy/internal/membership", "plugins/policy/internal/processor", "plugins/policy/internal/configurator",
	"renderer/cache", "renderer/acl", "renderer/session", "renderer/xdp", "renderer/xdp/bpf", "renderer/xdp/compile", "internal/vswitch", "internal/analysis/oracle",
	"plugins/follow", "plugins/datasync", "plugins/statefile", "plugins/kvstore", "internal/reflector", "plugins/endpoints", "internal/cni/install",
}

func loaded(t *testing.T) []Fault {
	t.Helper()
	faults, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return faults
}

func TestFaultsFitTheirFiles(t *testing.T) {
	for _, f := range loaded(t) {
		if _, err := f.read(root); err != nil {
			t.Errorf("%s: %v", f.ID(), err)
		}
	}
}

func TestFaultsAreAllListed(t *testing.T) {
	faults := loaded(t)
	if len(faults) < 60 {
		t.Errorf("%d faults, want 60 at least", len(faults))
	}
	perArea, ids, edits := map[string]int{}, map[string]bool{}, map[string]string{}
	for _, f := range faults {
		perArea[f.Area]++
		if ids[f.ID()] {
			t.Errorf("%s is there twice", f.ID())
		}
		ids[f.ID()] = true
		edit := f.File + "\x00" + f.Was + "\x00" + f.Now
		if other, ok := edits[edit]; ok {
			t.Errorf("%s and %s are the same edit", f.ID(), other)
		}
		edits[edit] = f.ID()
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(f.Name) {
			t.Errorf("%q is not a name: want lower-case words with hyphens", f.Name)
		}
		if len(f.Why) < 20 || !strings.HasSuffix(f.Why, ".") {
			t.Errorf("%s: %q is not a reason", f.ID(), f.Why)
		}
	}
	for _, a := range areas {
		if perArea[a] < 5 {
			t.Errorf("area %s has %d faults, want 5 at least", a, perArea[a])
		}
		delete(perArea, a)
	}
	for a := range perArea {
		t.Errorf("area %s is not known", a)
	}
	for _, room := range rooms {
		if !slices.ContainsFunc(faults, func(f Fault) bool { return f.isOf(room) }) {
			t.Errorf("%s has no fault", room)
		}
	}
}

func TestSuitesExist(t *testing.T) {
	for _, s := range harness {
		tests, err := filepath.Glob(filepath.Join(root, s.Folder, "*_test.go"))
		if err != nil || len(tests) == 0 {
			t.Errorf("%s has no tests", s.Folder)
		}
	}
}

func TestFaultsThatDoNotFitAreFound(t *testing.T) {
	const source = "package p\n\nfunc f() int {\n\ta := 1\n\tb := 1\n\treturn a + b\n}\n"
	dir := t.TempDir()
	for _, name := range []string{"p.go", "p_test.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, file, was, now string
		want                 string // in the file, or in the error
		bad                  bool
	}{
		{"an edit", "p.go", "a + b", "a - b", "return a - b", false},
		{"a line that goes", "p.go", "b := 1", "", "a := 1\n\treturn", false},
		{"a text that is there twice", "p.go", "1", "2", "2 times", true},
		{"a text that is missing", "p.go", "a * b", "a", "0 times", true},
		{"no text", "p.go", "", "a", "times", true},
		{"an edit that changes nothing", "p.go", "a + b", "a + b", "changes nothing", true},
		{"an edit that does not parse", "p.go", "a + b", "a +", "does not parse", true},
		{"an edit that gofmt would change", "p.go", "a + b", "a  +  b", "gofmt", true},
		{"a test", "p_test.go", "a + b", "a - b", "not a source file", true},
		{"a missing file", "q.go", "a + b", "a - b", "no such file", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Fault{File: tt.file, Was: tt.was, Now: tt.now}.read(dir)
			text := string(got)
			if err != nil {
				text = err.Error()
			}
			if (err != nil) != tt.bad || !strings.Contains(text, tt.want) {
				t.Errorf("got %q, want %q in it", text, tt.want)
			}
		})
	}
}
