package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/tests/spec/conformance"
)

// Result is what came of one suite on one subject with one addressing.
type Result struct {
	Suite, Subject, Addressing string

	Cases   int // of which at least one step was asked
	Steps   int // that the subject received
	Changes int // objects that the subject received in all steps; 0 for a stateless subject
	Asked
	// Skipped counts steps that were not asked, by reason.
	Skipped map[string]int

	Mismatches int
	Failed     int               // cases with a mismatch
	Reports    []Mismatch        // the first mismatches
	Features   map[string]*Score // by tag, of the cases that were asked
}

// Asked is what a subject was asked.
type Asked struct {
	// Probes counts the flows that were asked, without those of Resyncs. Loopbacks are
	// those of a pod to itself, Unstated those for which the oracle was asked.
	Probes, Loopbacks, Unstated int
	// Unseen counts the flows that the subject cannot be asked about, Closed those that it
	// denies because it cannot express the rule that permits them. The former are no Probes.
	Unseen, Closed        int
	Directions            int // judgements of single directions
	Resyncs, ResyncProbes int // new subjects, and the flows that those were asked
}

// count counts a probe of a kind of its own; when is that of a new subject, or empty.
func (a *Asked) count(p conformance.Probe, when string) {
	if when != "" {
		return
	}
	if p.Loopback() {
		a.Loopbacks++
	} else if p.Unstated {
		a.Unstated++
	}
}

// Score counts cases.
type Score struct{ Passed, Total int }

// Mismatch is one thing that is not as it should be.
type Mismatch struct {
	Case, Name string
	Step       int
	What       string // for example "x/a -> y/b 80/tcp (10.0.0.1 -> 10.0.0.2) is denied, want allowed"
	Why        string // in the words of the subject
}

// String returns all of it.
func (m Mismatch) String() string {
	return fmt.Sprintf("case %s (%s) step %d: %s\n%s", m.Case, m.Name, m.Step, m.What, m.Why)
}

// maxReports is how many mismatches of a result are kept in words.
const maxReports = 10

// tracker adds up a Result, step by step.
type tracker struct {
	Result
	at       conformance.Case
	step     int
	asked    bool // a step of the case was asked
	mismatch bool // the case has a mismatch
}

func (t *tracker) begin(c conformance.Case) { t.at, t.asked, t.mismatch = c, false, false }

// end counts the case that was begun, under each of its tags.
func (t *tracker) end() {
	if !t.asked {
		return
	}
	t.Cases++
	if t.mismatch {
		t.Failed++
	}
	for _, tag := range t.at.Tags {
		score := t.Features[tag]
		if score == nil {
			score = &Score{}
			t.Features[tag] = score
		}
		score.Total++
		if !t.mismatch {
			score.Passed++
		}
	}
}

func (t *tracker) skip(reason string) { t.Skipped[reason]++ }

func (t *tracker) fail(what, why string) {
	t.Mismatches++
	t.mismatch = true
	if len(t.Reports) < maxReports {
		t.Reports = append(t.Reports, Mismatch{Case: t.at.ID, Name: t.at.Name, Step: t.step, What: what, Why: why})
	}
}

// Tags returns the tags of the results, those of most cases first.
func Tags(results []Result) []string {
	most := map[string]int{}
	for _, r := range results {
		for tag, score := range r.Features {
			most[tag] = max(most[tag], score.Total)
		}
	}
	return slices.SortedFunc(maps.Keys(most), func(a, b string) int {
		return cmp.Or(most[b]-most[a], cmp.Compare(a, b))
	})
}
