package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResultsOfGinkgo(t *testing.T) {
	const report = `[{"SpecialSuiteFailureReasons": ["Interrupted by Timeout"], "SpecReports": [
		{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-network] Netpol"], "LeafNodeType": "It", "LeafNodeText": "denies", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-network] Netpol"], "LeafNodeType": "It", "LeafNodeText": "allows", "State": "timedout", "Failure": {"Message": "too late\nmore"}},
		{"ContainerHierarchyTexts": ["[sig-network] Netpol"], "LeafNodeType": "It", "LeafNodeText": "Windows", "State": "skipped", "Failure": {"Message": "not here"}},
		{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "start", "State": "skipped"},
		{"LeafNodeType": "SynchronizedAfterSuite", "State": "failed", "Failure": {"Message": "no end"}}]}]`
	got, err := ginkgoResults([]byte(report), "Netpol")
	if err != nil {
		t.Fatal(err)
	}
	want := []result{
		{"the suite", failed, "Interrupted by Timeout"},
		{name: "[sig-network] Netpol denies"},
		{"[sig-network] Netpol allows", failed, "too late"},
		{"[sig-network] Netpol Windows", skipped, "not here"},
		{"", failed, "no end"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
	if _, err := ginkgoResults([]byte(`[{"SpecReports": []}]`), "Netpol"); err == nil {
		t.Error("a run without tests is no error")
	}
}

func TestResultsOfGo(t *testing.T) {
	got, err := testResults(`=== RUN   TestConformance
    suite.go:1: --- PASS is no verdict
--- FAIL: TestConformance (9.00s)
    --- FAIL: TestConformance/Ingress (4.00s)
        --- PASS: TestConformance/Ingress/Should_allow (2.00s)
        --- FAIL: TestConformance/Ingress/Should_deny (2.00s)
    --- FAIL: TestConformance/Egress (0.00s)
    --- SKIP: TestConformance/Domains (0.00s)
`)
	if err != nil {
		t.Error(err)
	}
	want := []result{
		{name: "Ingress: Should allow"}, {name: "Ingress: Should deny", state: failed},
		{name: "Egress", state: failed}, {"Domains", skipped, "the suite skipped it"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
}

// TestResultsOfGoThatDidNotEnd: tests that a time-out ended, and those that could not begin.
func TestResultsOfGoThatDidNotEnd(t *testing.T) {
	for _, text := range []string{
		"--- FAIL: TestConformance (9.00s)\n    --- PASS: TestConformance/Ingress (4.00s)\npanic: test timed out after 3h\n",
		"--- FAIL: TestConformance (300.00s)\n    no pods\nFAIL\n",
	} {
		if got, err := testResults(text); err == nil {
			t.Errorf("%q: %v, and no error", text, got)
		}
	}
}

func TestResultsOfJUnit(t *testing.T) {
	got, err := junitResults([]byte(`<testsuite><testcase name="one"></testcase><testcase name="two"><failure message="wrong"></failure></testcase></testsuite>`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]result{{name: "one"}, {"two", failed, "wrong"}}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
}

// TestPageKeepsOtherParts replaces one part, adds another one, and refuses a page that is
// broken.
func TestPageKeepsOtherParts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	replace := func(key, text, want string) {
		t.Helper()
		if err := replacePart(file, key, text); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
	if err := os.WriteFile(file, []byte("# Page\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const one, two = "<!-- begin one -->\n%<!-- end one -->\n", "\n<!-- begin two -->\n2\n<!-- end two -->\n"
	first := "# Page\n\n" + one
	replace("one", "1\n", strings.ReplaceAll(first, "%", "1\n"))
	replace("two", "2\n", strings.ReplaceAll(first+two, "%", "1\n"))
	replace("one", "one\n", strings.ReplaceAll(first+two, "%", "one\n"))
	if err := os.WriteFile(file, []byte("<!-- begin one -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := replacePart(file, "one", "1\n"); err == nil {
		t.Error("a page without the end of a part was written")
	}
}

// TestPageKeepsSuitesThatWereNotRun keeps rows and lists of suites that were left out this time.
func TestHintNamesFolderOfCluster(t *testing.T) {
	for dir, want := range map[string]string{"/x": "SLUICE_KUBE=/x go run ./tests/system/kube kubectl ", defaultDir(): "go run ./tests/system/kube kubectl "} {
		var l lab
		l.dir = dir
		if got := l.hint(); !strings.HasPrefix(got, want) {
			t.Errorf("the hint of a cluster in %s is %q", dir, got)
		}
	}
}

func TestPageKeepsSuitesThatWereNotRun(t *testing.T) {
	of := func(name string, results ...result) outcome {
		return outcome{suite: all()[slices.IndexFunc(all(), func(s suite) bool { return s.name == name })], version: "v1", results: results}
	}
	text := func(p page) string {
		b := new(strings.Builder)
		b.WriteString(p.rows())
		p.list(b, "Failed", failed)
		p.list(b, "Not run", skipped)
		return b.String()
	}
	e2e := of("e2e", result{"a", passed, ""}, result{"b", failed, "wrong"}, result{"c", skipped, "no SCTP"})
	cyclonus := of("cyclonus", result{"d", failed, "slow"}, result{"e", skipped, ""})
	whole := text(page{outcomes: []outcome{e2e, cyclonus}})
	first := text(page{outcomes: []outcome{e2e}})
	if diff := cmp.Diff(whole, text(page{outcomes: []outcome{cyclonus}, earlier: first})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(whole, text(page{earlier: whole})); diff != "" {
		t.Error(diff)
	}
	again := text(page{outcomes: []outcome{of("cyclonus", result{"d", passed, ""})}, earlier: whole})
	if want := text(page{outcomes: []outcome{e2e, of("cyclonus", result{"d", passed, ""})}}); want != again {
		t.Error(cmp.Diff(want, again))
	}
}
