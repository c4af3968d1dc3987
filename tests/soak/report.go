package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/tests/differential"
)

// report is what a run ends with. Its JSON form is stable.
type report struct {
	Kind        string              `json:"kind"`
	Seed        uint64              `json:"seed"` // of the first sequence
	Workers     int                 `json:"workers"`
	Flows       int                 `json:"flows,omitempty"` // as the flag says
	Stride      int                 `json:"stride"`
	Asked       int                 `json:"asked"` // sequences
	Seconds     float64             `json:"seconds"`
	Interrupted bool                `json:"interrupted,omitempty"`
	Counts      differential.Counts `json:"counts"`
	Divergences []divergence        `json:"divergences"`
}

// divergence is one sequence in which a property did not hold.
type divergence struct {
	Seed   uint64 `json:"seed"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	Case   string `json:"case"`   // the minimal one, in words and manifests
	Events int    `json:"events"` // of the minimal case
}

func (r report) write(w io.Writer, form string) error {
	if form == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	out := term.NewWriter(w)
	for _, d := range r.Divergences {
		out.Printf("%s\n\nseed %d, minimal case: %s\n%s: %s\n\n", out.Styled(term.Red, "DIVERGENCE"), d.Seed, d.Case, d.Check, d.Text)
		out.Printf("repeat it: go run ./tests/soak -kind %s -flows %d -stride %d -seed %d -sequences 1\n\n", r.Kind, r.Flows, r.Stride, d.Seed)
	}
	r.table().Print(out)
	return out.Err()
}

// table lists the counts.
func (r report) table() *term.Table {
	c := r.Counts
	t := &term.Table{}
	t.Row("kind", r.Kind)
	t.Row("first seed", r.Seed)
	t.Row("sequences", fmt.Sprintf("%d of %d", c.Sequences, r.Asked))
	t.Row("events", c.Events)
	t.Row("verdicts compared", c.Verdicts)
	t.Row("  denied", fmt.Sprintf("%.1f %%", 100*float64(c.Denied)/float64(max(1, c.Verdicts))))
	t.Row("established flows judged again", c.Established)
	t.Row("calls that failed", c.Failures)
	t.Row("flows judged in between", c.Between)
	t.Row("agents and nodes restarted", c.Restarts)
	t.Row("nodes compared with new ones", c.Fresh)
	t.Row("states sent again", c.Again)
	t.Row("time", fmt.Sprintf("%.1f s, %.1f sequences per second with %d workers", r.Seconds, float64(c.Sequences)/max(r.Seconds, 1e-9), r.Workers))
	for _, name := range slices.Sorted(maps.Keys(c.Actions)) {
		t.Row("event: "+name, c.Actions[name])
	}
	t.Row("divergences", len(r.Divergences))
	if r.Interrupted {
		t.Row("interrupted", "")
	}
	return t
}
