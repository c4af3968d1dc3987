package scenarios_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/spec/scenarios"
)

// watched is a test that may fail without failing the one around it.
type watched struct {
	testing.TB
	failed bool
	log    strings.Builder
}

func (w *watched) Helper()        {}
func (w *watched) Fail()          { w.failed = true }
func (w *watched) Failed() bool   { return w.failed }
func (w *watched) FailNow()       { w.failed = true; runtime.Goexit() }
func (w *watched) Log(a ...any)   { fmt.Fprintln(&w.log, a...) }
func (w *watched) Error(a ...any) { w.Log(a...); w.Fail() }
func (w *watched) Fatal(a ...any) { w.Log(a...); w.FailNow() }

func (w *watched) Logf(format string, a ...any)   { fmt.Fprintf(&w.log, format+"\n", a...) }
func (w *watched) Errorf(format string, a ...any) { w.Logf(format, a...); w.Fail() }
func (w *watched) Fatalf(format string, a ...any) { w.Logf(format, a...); w.FailNow() }

// watch runs a file and returns what it said, and whether it failed.
func watch(t *testing.T, file string, kind backends.Kind) (failed bool, log string) {
	t.Helper()
	w := &watched{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		scenarios.Run(w, file, kind, scenarios.Options{Flows: 500})
	}()
	<-done
	return w.failed, w.log.String()
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scenario.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const small = `# a small one
cluster
node n1 192.168.0.1
external X 8.8.8.8
namespace shop
pod shop/web 10.1.1.2 app=web
pod shop/fe 10.1.1.3 role=fe
----
ok
`

const restricted = small + `
policy shop/web
for app=web
ingress from pods(role=fe) on 80
----
ok
`

func TestScenarioFailureIsRepairedByUpdate(t *testing.T) {
	const right = "from \\ to  shop/web\nshop/fe    AD\nX          DD\n"
	const ask = "\n# Whoever reads this knows why.\nverdicts 80 81 from=(shop/fe,X) to=(shop/web)\n----\n"
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		for _, wrong := range []string{strings.Replace(right, "AD", "AA", 1), strings.Replace(right, "DD", "AD", 1), "ok\n", ""} {
			file := write(t, restricted+ask+wrong)
			if failed, log := watch(t, file, kind); !failed || !strings.Contains(log, file+":18") {
				t.Errorf("%q fails: %t\n%s", wrong, failed, log)
			}
			rewrite(t, file, kind)
			if text, err := os.ReadFile(file); err != nil || string(text) != restricted+ask+right {
				t.Errorf("%q is mended to:\n%s%v", wrong, text, err)
			}
			if failed, log := watch(t, file, kind); failed {
				t.Errorf("mended, it fails:\n%s", log)
			}
		}
	})
}

// rewrite runs a file as -update does.
func rewrite(t *testing.T, file string, kind backends.Kind) {
	t.Helper()
	before := flag.Lookup("rewrite").Value.String()
	if err := flag.Set("rewrite", "true"); err != nil {
		t.Fatal(err)
	}
	failed, log := watch(t, file, kind)
	if err := flag.Set("rewrite", before); err != nil || failed {
		t.Fatalf("rewriting fails: %v\n%s", err, log)
	}
}

// TestUpdateDoesNotHideFault rewrites the expectations of a file with a faulty product.
func TestUpdateDoesNotHideFault(t *testing.T) {
	file := write(t, restricted+"\nlabel pod shop/fe role=other\n----\nok\n")
	if err := flag.Set("rewrite", "true"); err != nil {
		t.Fatal(err)
	}
	failed, log := watch(t, file, faulty(renderertest.KeepMembers))
	if err := flag.Set("rewrite", fmt.Sprint(*update)); err != nil {
		t.Fatal(err)
	}
	if !failed || !strings.Contains(log, "verdict: ") {
		t.Errorf("fails: %t\n%s", failed, log)
	}
}

// faulty is the first kind of dataplane with a fault between the product and its renderer.
func faulty(fault renderertest.Edit) backends.Kind {
	kind := backends.All[0]
	sound := kind.New
	kind.New = func(prompt func()) (backends.Backend, error) {
		s, err := sound(prompt)
		return faultyStack{s, fault}, err
	}
	return kind
}

type faultyStack struct {
	backends.Backend
	fault renderertest.Edit
}

func (s faultyStack) Renderer() renderer.Renderer {
	return renderertest.Edited(s.Backend.Renderer(), s.fault)
}

func TestScenarioFailsOnFaultOfProduct(t *testing.T) {
	for _, tt := range []struct {
		name, change, finds string
		fault               renderertest.Edit
	}{
		{"members of sets stay", "label pod shop/fe role=other", "verdict: ", renderertest.KeepMembers},
		{"pods stay", "delete pod shop/web", "fresh: ", renderertest.KeepPods},
		{"rules are lost", "", "verdict: ", renderertest.OpenEgress},
	} {
		text := restricted
		if tt.change != "" {
			text += "\n" + tt.change + "\n----\nok\n"
		}
		file := write(t, text)
		if failed, log := watch(t, file, faulty(tt.fault)); !failed || !strings.Contains(log, tt.finds) {
			t.Errorf("%s: fails: %t\n%s", tt.name, failed, log)
		}
		if failed, log := watch(t, file, backends.All[0]); failed {
			t.Errorf("%s: without the fault it fails, too:\n%s", tt.name, log)
		}
	}
}
