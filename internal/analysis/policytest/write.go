package policytest

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// Write writes the report for people: problems and errors, what is wrong as
// tables, then one line for each subject.
func (r Report) Write(w *term.Writer) {
	r.writeProblems(w)
	r.writeMismatches(w)
	r.writeDisagreements(w)
	r.writeSummary(w)
}

func (r Report) writeProblems(w *term.Writer) {
	for _, p := range r.Problems {
		w.Printf("%s %s\n", w.Styled(term.Amber, "problem"), p.Error())
	}
	for _, e := range r.Errors {
		w.Printf("%s %s: %s\n", w.Styled(term.Red, "error"), r.Name, e)
	}
}

func (r Report) writeMismatches(w *term.Writer) {
	if r.MismatchCount == 0 {
		return
	}
	w.Printf("%s %s: %s\n", w.Styled(term.Red, "FAIL"), r.Name, term.Count(r.MismatchCount, "mismatch"))
	t := term.NewTable("STEP", "FROM", "TO", "PORT", "EXPECTED", "GOT", "BY", "PROBE", "WHY")
	t.Indent = "  "
	for group := range alike(r.Mismatches, Mismatch.alike) {
		m := group[0]
		t.Row(m.Step, m.from(), m.to(), portList(group, Mismatch.port), string(m.Expected), term.Cell{Text: string(m.Got), Style: term.Red},
			orDash(m.Subject), m.Position, m.Why)
	}
	t.Print(w)
	writeMore(w, r.MismatchCount-len(r.Mismatches))
}

// alike reports whether two mismatches differ in their ports only.
func (m Mismatch) alike(o Mismatch) bool {
	return m.Place.alike(o.Place) && m.Step == o.Step && m.Position == o.Position && m.Expected == o.Expected &&
		m.Got == o.Got && m.Subject == o.Subject && m.Why == o.Why
}

func (d Disagreement) alike(o Disagreement) bool {
	return d.Place.alike(o.Place) && d.Step == o.Step && d.Position == o.Position && slices.Equal(d.Answers, o.Answers)
}

func (p Place) alike(o Place) bool {
	return p.From == o.From && p.To == o.To && p.Flow.Src == o.Flow.Src && p.Flow.Dst == o.Flow.Dst
}

// alike yields the runs of elements that follow each other and are alike: in a
// matrix all ports of a pair often go wrong for one reason.
func alike[T any](list []T, same func(a, b T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n := 1
			for n < len(list) && same(list[0], list[n]) {
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// portList returns the ports of places that are alike, the first few by name.
func portList[T any](group []T, port func(T) string) string {
	const shown = 3
	var out []string
	for _, e := range group[:min(len(group), shown)] {
		out = append(out, port(e))
	}
	text := strings.Join(out, ", ")
	if more := len(group) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (r Report) writeDisagreements(w *term.Writer) {
	if r.DisagreementCount == 0 {
		return
	}
	w.Printf("%s %s: the subjects disagree about %s\n", w.Styled(term.Red, "FAIL"), r.Name, term.Count(r.DisagreementCount, "flow"))
	t := term.NewTable("STEP", "FROM", "TO", "PORT", "BY", "GOT", "PROBE", "WHY")
	t.Indent = "  "
	for group := range alike(r.Disagreements, Disagreement.alike) {
		d := group[0]
		for _, a := range d.Answers {
			t.Row(d.Step, d.from(), d.to(), portList(group, Disagreement.port), a.Subject, string(a.Got), d.Position, a.Why)
		}
	}
	t.Print(w)
	writeMore(w, r.DisagreementCount-len(r.Disagreements))
}

func writeMore(w *term.Writer, n int) {
	if n > 0 {
		w.Printf("  and %d more\n", n)
	}
}

// writeSummary writes for example
//
//	ok    shop  oracle  4512 probes in 5 steps  0 mismatches  13ms  345000 probes/s
func (r Report) writeSummary(w *term.Writer) {
	t := &term.Table{}
	for _, s := range r.Subjects {
		probes := term.Count(s.Probes, "probe") + " in " + term.Count(r.Steps, "step")
		if s.Unasked > 0 {
			probes += fmt.Sprintf(", %d not asked", s.Unasked)
		}
		t.Row(r.state(s), r.Name, s.Name, probes,
			term.Count(s.Mismatches, "mismatch"), round(s.Applying+s.Asking), rate(s.Rate()))
	}
	t.Print(w)
}

// WriteTotal writes one line about all tests, for example
//
//	5 tests  3 passed, 1 failed, 1 could not be run  4512 probes  1.24s
//
// Files that could not be read count as tests that could not be run.
func WriteTotal(w *term.Writer, reports []Report, unread int, took time.Duration) {
	passed, broken, probes := 0, unread, 0
	for _, r := range reports {
		switch {
		case r.OK():
			passed++
		case len(r.Errors) > 0:
			broken++
		}
		probes += r.Probes
	}
	all := len(reports) + unread
	text := []string{fmt.Sprintf("%d passed", passed)}
	if failed := all - passed - broken; failed > 0 {
		text = append(text, string(w.Styled(term.Red, fmt.Sprintf("%d failed", failed))))
	}
	if broken > 0 {
		text = append(text, string(w.Styled(term.Red, fmt.Sprintf("%d could not be run", broken))))
	}
	w.Printf("%s  %s  %s  %s\n", term.Count(all, "test"), term.Text(strings.Join(text, ", ")), term.Count(probes, "probe"), round(took))
}

func (p Place) from() string { return withAddr(p.From, p.Flow.Src.String(), p.Flow.Src.Is6()) }
func (p Place) to() string   { return withAddr(p.To, p.Flow.Dst.String(), p.Flow.Dst.Is6()) }

// withAddr adds the address of an IPv6 flow, to distinguish the two families of a pod.
func withAddr(name, addr string, is6 bool) string {
	if !is6 || name == addr {
		return name
	}
	return name + " (" + addr + ")"
}

// port returns "8080/TCP", "http=8080/TCP" or "ICMP".
func (p Place) port() string {
	switch {
	case p.Port == 0:
		return p.Protocol
	case p.PortName != "":
		return fmt.Sprintf("%s=%d/%s", p.PortName, p.Port, p.Protocol)
	}
	return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// round leaves three digits of a duration.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// rate leaves three digits of a rate.
func rate(perSecond float64) string {
	return strconv.FormatFloat(roundTo3(perSecond), 'f', 0, 64) + " probes/s"
}

func roundTo3(f float64) float64 {
	unit := 1.0
	for f/unit >= 1000 {
		unit *= 10
	}
	return float64(int64(f/unit+0.5)) * unit
}

// state returns the word for one subject. A flow that cannot exist is no subject's mismatch, and
// fails all of them.
func (r Report) state(s SubjectReport) term.Cell {
	ofSubjects := 0
	for _, other := range r.Subjects {
		ofSubjects += other.Mismatches
	}
	switch {
	case len(r.Errors) > 0:
		return term.Cell{Text: "ERROR", Style: term.Red}
	case s.Mismatches > 0, r.MismatchCount > ofSubjects:
		return term.Cell{Text: "FAIL", Style: term.Red}
	}
	return term.Cell{Text: "ok", Style: term.Green}
}
