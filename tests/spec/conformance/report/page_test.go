package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/spec/conformance"
	"github.com/sluice-net/sluice/tests/spec/conformance/replay"
)

// small measures the suite that was written by hand.
func small(t *testing.T, kinds []replay.Kind) *measurement {
	t.Helper()
	m := &measurement{suites: []suite{{"Hand", conformance.Hand(t)}}, kinds: kinds, options: replay.Options{Resync: 1}}
	var progress bytes.Buffer
	if err := m.run(t.Context(), &progress); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(progress.String(), "\n"), len(m.results); got != want {
		t.Errorf("%d lines of progress, want %d:\n%s", got, want, &progress)
	}
	return m
}

func wantLines(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestReportShowsResults(t *testing.T) {
	m := small(t, replay.Kinds()[:2])
	page := m.page()
	wantLines(t, page,
		"**No mismatch** in 298 probes of oracle, "+replay.Kinds()[1].Name+".",
		"| Hand | written by hand for tests of the replay | 4 | 7 | 18 | 1 |\n",
		"| Hand | oracle | IPv4 | 3 | 7 | 0 | 18 | 1 | 0 | 0 | 0 | 18 | 0 | 0 | 0 |\n",
		"| both, IPv6 blocks | 3 | 7 | 15 | 36 | 2 | 12 | 0 | 0 | 0 | 5 | 36 | 0 |\n",
		"* skipped, Hand: has no probes: 1 steps\n",
		"| block | 4/4 | 4/4 |\n",
		"None. There is no list")
	if again := small(t, replay.Kinds()[:2]).page(); again != page {
		t.Error("the same measurement gives another page")
	}
}

func TestReportShowsMismatches(t *testing.T) {
	m := small(t, []replay.Kind{{Name: "open", New: func([]string) (replay.Subject, error) {
		s, err := replay.Kinds()[0].New(nil)
		return open{s}, err
	}}})
	wantLines(t, m.page(), "mismatches** in", "| **10** |\n", "| block | **0/4** |", "Hand on open, IPv4: 10 in 3 cases", "outside -> shop/web 91/tcp (203.0.113.9 -> 10.1.1.10) is allowed, want denied")
	if m.mismatches() < 10*4 {
		t.Errorf("%d mismatches", m.mismatches())
	}
}

// open lets everything pass.
type open struct{ replay.Subject }

func (open) Allowed(api.Flow) bool { return true }

func TestReportNamesAbsentSuites(t *testing.T) {
	_, err := load(func(string) (string, bool) { return "", false })
	if !errors.Is(err, errAbsent) || status(err) != 2 || !strings.Contains(err.Error(), "../shared/conformance/") {
		t.Errorf("%v with status %d", err, status(err))
	}
	if status(errMismatch) != 1 || status(io.EOF) != 1 {
		t.Error("a failure has another status than 1")
	}
	for _, file := range conformance.Policies {
		if titles[file] == "" {
			t.Errorf("%s has no title", file)
		}
	}
}

// TestReportCommittedIsComplete looks at the page as it is: that its links lead somewhere,
// and that it knows every subject.
func TestReportCommittedIsComplete(t *testing.T) {
	const dir = "../../../../docs/reference"
	text, err := os.ReadFile(filepath.Join(dir, "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(page, -1)
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(dir, link[1])); err != nil {
			t.Errorf("run make conformance: %v", err)
		}
	}
	for _, k := range replay.Kinds() {
		if !strings.Contains(page, "| "+k.Name+" |") {
			t.Errorf("run make conformance: the page does not know %s", k.Name)
		}
	}
	if len(links) < 10 {
		t.Errorf("the page has only %d links", len(links))
	}
}
