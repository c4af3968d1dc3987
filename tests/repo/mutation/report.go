package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is what a run came to.
type Report struct {
	Results []Result  `json:"results"`
	Suites  []Summary `json:"suites"` // of those that caught something, cheapest first
	Areas   []Summary `json:"areas"`
	Seconds float64   `json:"seconds"`
}

// Summary counts faults.
type Summary struct {
	Name   string `json:"name"`
	Faults int    `json:"faults"`           // of an area all, of a suite those that it caught
	First  int    `json:"first,omitempty"`  // of a suite: those that it was the first to catch
	Missed int    `json:"missed,omitempty"` // of an area: those that nothing caught
}

// newReport counts. suites are in the order in which they were asked.
func newReport(results []Result, suites []string, seconds float64) Report {
	out := Report{Results: results, Seconds: seconds}
	for _, name := range suites {
		s := Summary{Name: name}
		for _, r := range results {
			real := slices.DeleteFunc(slices.Clone(r.By), func(c Catch) bool { return c.TimedOut })
			if slices.ContainsFunc(real, func(c Catch) bool { return c.Suite == name }) {
				s.Faults++
			}
			if len(real) > 0 && real[0].Suite == name {
				s.First++
			}
		}
		out.Suites = append(out.Suites, s)
	}
	for _, r := range results {
		if n := len(out.Areas); n == 0 || out.Areas[n-1].Name != r.Area {
			out.Areas = append(out.Areas, Summary{Name: r.Area})
		}
		s := &out.Areas[len(out.Areas)-1]
		s.Faults++
		if r.missed() {
			s.Missed++
		}
	}
	return out
}

// missed reports whether something must be done about the result.
func (r Result) missed() bool { return r.Verdict == Survived || r.Verdict == Broken }

// missed counts such results.
func (r Report) missed() int {
	n := 0
	for _, a := range r.Areas {
		n += a.Missed
	}
	return n
}

// describe returns the result of a fault in one line.
func (r Result) describe() string {
	switch {
	case r.Verdict == Broken:
		return r.Error
	case len(r.By) == 0:
		return string(r.Verdict)
	}
	texts := make([]string, len(r.By))
	for i, c := range r.By {
		texts[i] = c.describe()
	}
	return strings.Join(texts, ", ")
}

func (c Catch) describe() string {
	how := ""
	if !c.Short {
		how = " in full"
	}
	return fmt.Sprintf("%s%s: %s (%.1f s)", c.Suite, how, cut(c.Test, 90), c.Seconds)
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}

// table prints the report as text.
func (r Report) table(w io.Writer, unit bool) error {
	var b strings.Builder
	head := "AREA\tFAULT\tVERDICT\tBY\n"
	if unit {
		head = "AREA\tFAULT\tVERDICT\tUNIT TESTS\tBY\n"
	}
	b.WriteString(head)
	for _, x := range r.Results {
		by := x.describe()
		if unit {
			by = cut(x.Unit, 50) + "\t" + by
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", x.Area, x.Fault, x.Verdict, by)
	}
	b.WriteString("\nSUITE\tCAUGHT\tFIRST\n")
	for _, s := range r.Suites {
		fmt.Fprintf(&b, "%s\t%d\t%d\n", s.Name, s.Faults, s.First)
	}
	b.WriteString("\nAREA\tFAULTS\tMISSED\n")
	for _, s := range r.Areas {
		fmt.Fprintf(&b, "%s\t%d\t%d\n", s.Name, s.Faults, s.Missed)
	}
	fmt.Fprintf(&b, "\n%d of %d faults were caught in %.0f s\n", len(r.Results)-r.missed(), len(r.Results), r.Seconds)
	return inColumns(w, b.String())
}

// inColumns aligns what tabs divide.
func inColumns(w io.Writer, text string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(t, text); err != nil {
		return err
	}
	return t.Flush()
}

// json prints the report for programs.
func (r Report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
