package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A module with two suites: one sees everything quickly, the other one the sum only, and
// more of it in full.
var example = map[string]string{
	"go.mod": "module example.test/m\n\ngo 1.26\n",
	"sum/sum.go": `package sum

// Sum adds.
func Sum(a, b int) int {
	c := a + b
	return c
}
`,
	"sum/sum_test.go": `package sum

import (
	"testing"
	"time"
)

func TestZero(t *testing.T) {
	time.Sleep(150 * time.Millisecond)
	if Sum(0, 1) != 1 {
		t.Error("wrong")
	}
}
`,
	"other/other.go": "package other\n\n// Two is two.\nfunc Two() int { return 2 }\n",
	"quick/quick_test.go": `package quick

import (
	"testing"

	"example.test/m/sum"
)

func TestSum(t *testing.T) {
	t.Run("small", func(t *testing.T) {
		if sum.Sum(1, 1) != 2 {
			t.Error("wrong")
		}
	})
}
`,
	"slow/slow_test.go": `package slow

import (
	"testing"
	"time"

	"example.test/m/other"
	"example.test/m/sum"
)

func TestOther(t *testing.T) {
	time.Sleep(50 * time.Millisecond)
	if other.Two() != 2 {
		t.Error("wrong")
	}
}

func TestAll(t *testing.T) {
	if !testing.Short() && sum.Sum(100, 1) != 101 {
		t.Error("wrong")
	}
}
`,
}

func exampleTree(t *testing.T) tree {
	t.Helper()
	t.Setenv("GOWORK", "off")
	dir := t.TempDir()
	for name, text := range example {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := openTree(t.Context(), filepath.Join(dir, "sum"))
	if err != nil {
		t.Fatal(err)
	}
	if found.module != "example.test/m" {
		t.Fatalf("module is %q", found.module)
	}
	return found
}

var exampleSuites = []Suite{{Folder: "slow"}, {Folder: "quick"}, {Folder: "sum", Only: "sum"}}

func exampleRunner(t *testing.T, o Options) *runner {
	t.Helper()
	r, err := newRunner(t.Context(), exampleTree(t), exampleSuites, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func in(file, name, now string) Fault {
	was := "a + b"
	if file == "other/other.go" {
		was = "return 2"
	}
	return Fault{Name: name, Area: "example", File: file, Was: was, Now: now, Why: "an example"}
}

func TestRunner(t *testing.T) {
	r := exampleRunner(t, Options{Parallel: 2, Limit: 3 * time.Second, Unit: true})
	t.Run("every kind of fault meets its fate", func(t *testing.T) { checkFates(t, r) })
	r.Every, r.Unit = true, false
	t.Run("every suite is asked", func(t *testing.T) { checkEvery(t, r) })
	t.Run("a run can be ended", func(t *testing.T) { checkEnd(t, r) })
}

func checkFates(t *testing.T, r *runner) {
	faults := []Fault{
		in("sum/sum.go", "caught", "a - b"),
		in("sum/sum.go", "changes-nothing", "b + a"),
		in("sum/sum.go", "does-not-compile", "a + d"),
		in("sum/sum.go", "does-not-fit", "a + b"),
		in("sum/sum.go", "only-in-full", "a + b + b*(a/100)"),
		in("sum/sum.go", "hangs", "a + b\n\tfor c >= 0 {\n\t}"),
		in("sum/sum.go", "dies", "func() int { done := make(chan int); go func() { panic(a) }(); return <-done }()"),
		in("other/other.go", "elsewhere", "return 3"),
	}
	var reported []string
	r.Progress = func(done, all int, x Result) { reported = append(reported, x.Fault) }
	results, err := r.run(t.Context(), faults)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		verdict     Verdict
		suite, test string
		short       bool
		unit        string
	}{
		{Caught, "quick", "TestSum/small", true, "TestZero"},
		{Survived, "", "", false, "survived"},
		{Broken, "", "undefined: d", false, ""},
		{Broken, "", "changes nothing", false, ""},
		{Caught, "slow", "TestAll", false, "survived"},
		{TimedOut, "quick", "still running", true, "still running"},
		{Caught, "quick", "panic: 1", true, "panic: 0"},
		{Caught, "slow", "TestOther", true, "no tests"},
	} {
		got := results[i]
		if got.Verdict != want.verdict || !strings.Contains(got.describe(), want.test) || !strings.HasPrefix(got.Unit, want.unit) {
			t.Errorf("%s: %s, %s, unit tests: %s", got.Fault, got.Verdict, got.describe(), got.Unit)
		}
		if want.suite != "" && (got.By[0].Suite != want.suite || got.By[0].Short != want.short) {
			t.Errorf("%s is caught by %+v", got.Fault, got.By[0])
		}
	}
	if len(reported) != len(faults) {
		t.Errorf("reported %v", reported)
	}
	report := newReport(results, []string{"quick", "slow", "sum"}, 1)
	if report.missed() != 3 || report.Areas[0].Faults != len(faults) {
		t.Errorf("the report is %+v", report)
	}
	if s := report.Suites[0]; s.Faults != 2 || s.First != 2 {
		t.Errorf("the first suite has %+v", s)
	}
}

func checkEvery(t *testing.T, r *runner) {
	results, err := r.run(t.Context(), []Fault{in("sum/sum.go", "wrong", "a - b")})
	if err != nil {
		t.Fatal(err)
	}
	var suites []string
	for _, c := range results[0].By {
		suites = append(suites, c.Suite)
	}
	if len(suites) != 3 {
		t.Errorf("caught by %v", suites)
	}
}

func TestRunnerEndsWhenSuiteFailsWithoutFault(t *testing.T) {
	tr := exampleTree(t)
	text := strings.Replace(example["quick/quick_test.go"], "!= 2", "!= 3", 1)
	if err := os.WriteFile(filepath.Join(tr.root, "quick", "quick_test.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := newRunner(t.Context(), tr, []Suite{{Folder: "quick"}}, Options{})
	if !errors.Is(err, errBaseline) || !strings.Contains(err.Error(), "TestSum/small") {
		t.Errorf("got %v", err)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

func checkEnd(t *testing.T, r *runner) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := r.run(ctx, []Fault{in("sum/sum.go", "wrong", "a - b")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestFaultsAreChosenByAreaAndName(t *testing.T) {
	faults := []Fault{{Area: "port", Name: "a"}, {Area: "named-port", Name: "b"}, {Area: "cidr", Name: "port"}}
	for pattern, want := range map[string]int{"": 3, "^port/": 1, "port": 3, "b$": 1, "x": 0} {
		if got := choose(faults, regexp.MustCompile(pattern)); len(got) != want {
			t.Errorf("%q chooses %v", pattern, got)
		}
	}
}
