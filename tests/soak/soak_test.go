package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/differential"
	"github.com/sluice-net/sluice/tests/harness"
	"github.com/sluice-net/sluice/tests/harness/backends"
	"github.com/sluice-net/sluice/tests/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// soaked runs the program and reads its report.
func soaked(t *testing.T, kinds []backends.Kind, args ...string) (report, int) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), append(args, "-o", "json"), kinds, &out, io.Discard)
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	return r, code
}

// TestSoakFindsNoDivergence plays sequences on every kind of dataplane, and makes
// sure that they are about something.
func TestSoakFindsNoDivergence(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		sequences := renderertest.Extent(40, 80, 80) // so that everything happens
		if kind.Slow {
			sequences = 40
		}
		r, code := soaked(t, backends.All, "-kind", kind.Name, "-sequences", fmt.Sprint(sequences), "-seed", "1000001", "-minimise", "30s")
		for _, d := range r.Divergences {
			t.Errorf("seed %d: %s\n%s: %s", d.Seed, d.Case, d.Check, d.Text)
		}
		c := r.Counts
		if code != passed || c.Sequences != sequences || c.Events < 8*sequences {
			t.Errorf("exit code %d after %d sequences of %d events", code, c.Sequences, c.Events)
		}
		for _, name := range differential.Actions() {
			if c.Actions[name] < sequences/20 {
				t.Errorf("%s happened %d times only", name, c.Actions[name])
			}
		}
		if share := float64(c.Denied) / float64(c.Verdicts); share < 0.15 || share > 0.85 {
			t.Errorf("%.2f of the verdicts are denials", share)
		}
		if c.Failures < sequences/10 || c.Between < sequences || c.Fresh < 5*sequences || c.Restarts < sequences/2 || c.Again < 3*c.Events {
			t.Errorf("too little was checked: %+v", c)
		}
	})
}

// open is a dataplane that lets every packet to one port pass.
type open struct{ backends.Backend }

func (s open) Verdict(f api.Flow) api.Action {
	if f.DstPort == 443 {
		return api.Permit
	}
	return s.Backend.Verdict(f)
}

func faulty() []backends.Kind {
	kind := backends.All[0]
	return []backends.Kind{{Name: "open", New: func(prompt func()) (backends.Backend, error) {
		s, err := kind.New(prompt)
		return open{s}, err
	}}}
}

func TestSoakFindsAndReducesFault(t *testing.T) {
	r, code := soaked(t, faulty(), "-kind", "open", "-sequences", "50", "-seed", "1", "-divergences", "1", "-workers", "1")
	if code != diverged || len(r.Divergences) != 1 || r.Counts.Sequences > 50 {
		t.Fatalf("exit code %d, %d divergences in %d sequences", code, len(r.Divergences), r.Counts.Sequences)
	}
	d := r.Divergences[0]
	if d.Check != string(harness.Verdict) || d.Events > 1 || strings.Count(d.Case, "\n---") > 3 {
		t.Errorf("%s is not minimal: %s", d.Check, d.Case)
	}
	again, code := soaked(t, faulty(), "-kind", "open", "-sequences", "1", "-seed", fmt.Sprint(d.Seed), "-minimise", "1ms")
	if code != diverged || len(again.Divergences) != 1 {
		t.Errorf("the seed %d does not repeat it", d.Seed)
	}
	var out bytes.Buffer
	if err := r.write(&out, "text"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"DIVERGENCE", fmt.Sprintf("-seed %d -sequences 1", d.Seed), "event 0: ", "verdicts compared"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

func TestSoakInterruptedReports(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	kind := backends.All[0]
	started := 0
	kinds := []backends.Kind{{Name: "slow", New: func(prompt func()) (backends.Backend, error) {
		if started++; started == 40 {
			cancel()
		}
		return kind.New(prompt)
	}}}
	var out bytes.Buffer
	code := run(ctx, []string{"-kind", "slow", "-sequences", "100000", "-workers", "1", "-o", "json"}, kinds, &out, io.Discard)
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if code != interrupted || !r.Interrupted || len(r.Divergences) > 0 || r.Counts.Sequences == 0 || r.Counts.Sequences > 40 {
		t.Errorf("exit code %d: %+v", code, r)
	}
}

func TestSettingsErrorsNameFlag(t *testing.T) {
	for _, args := range [][]string{{"-kind", "none"}, {"-sequences", "0"}, {"-o", "xml"}, {"-nonsense"}, {"more"}} {
		var errOut bytes.Buffer
		if code := run(t.Context(), args, backends.All, io.Discard, &errOut); code != misused || errOut.Len() == 0 {
			t.Errorf("%v: exit code %d, %q", args, code, errOut.String())
		}
	}
}
