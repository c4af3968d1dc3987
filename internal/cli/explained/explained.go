// Package explained formats explanations of flows for terminals, brief or complete.
package explained

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// alike are explanations of one verdict for one reason.
type alike []view.Explanation

// grouped puts explanations together that say the same: those of what is denied
// first, else in the order of the first of each.
func grouped(all []view.Explanation) []alike {
	var out []alike
	at := map[string]int{}
	for _, e := range all {
		key := fmt.Sprint(e.Allowed, explain.Disagrees(e), e.RenderersDiffer, e.Oracle.Notes,
			e.Oracle.Egress.Reason, e.Oracle.Egress.Deciding, e.Oracle.Ingress.Reason, e.Oracle.Ingress.Deciding)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key], out = i, append(out, nil)
		}
		out[i] = append(out[i], e)
	}
	slices.SortStableFunc(out, func(a, b alike) int { // people ask about what is denied
		switch {
		case a[0].Allowed == b[0].Allowed:
			return 0
		case b[0].Allowed:
			return -1
		}
		return 1
	})
	return out
}

// Form is how much of an explanation is written.
type Form int

// The forms.
const (
	Brief   Form = iota
	Verbose      // every policy, rule and change
	Wide         // that, with the names of sets and tables
)

// Write writes what a single flow's answer is, or how those of several
// differ and one of each kind.
func Write(w *term.Writer, all []view.Explanation, f Form) {
	var rows []ServiceRow
	for _, e := range all {
		rows = append(rows, ServiceRow{e.Service, e.Src, e.Dst, e.Flow, e.Allowed})
	}
	of := WriteServices(w, rows)
	all = slices.DeleteFunc(slices.Clone(all), func(e view.Explanation) bool { return LeadsNowhere(e.Service) })
	groups := grouped(all)
	if len(all) > 1 && of == 0 {
		writeOverview(w, all, len(groups))
	}
	for i, g := range groups {
		if f == Brief && i == mostKinds && len(groups) > mostKinds+1 {
			w.Printf("\nand %s: -v shows all of them\n", term.Count(len(groups)-i, "more reason"))
			return
		}
		if i > 0 || len(all) > 1 || of > 0 {
			w.Printf("\n")
		}
		if f == Brief {
			writeBrief(w, g[0])
			writeAlso(w, g[1:])
			continue
		}
		writeExplanation(w, g[0], f == Wide)
		writeOthers(w, g[1:])
	}
}

// writeOverview is the first line when there are several flows.
func writeOverview(w *term.Writer, all []view.Explanation, kinds int) {
	denied := 0
	for _, e := range all {
		if !e.Allowed {
			denied++
		}
	}
	reasons := "for one reason"
	if kinds > 1 {
		reasons = fmt.Sprintf("for %d reasons", kinds)
	}
	switch denied {
	case 0:
		w.Printf("%s  all %d flows, %s\n", w.Styled(term.Green, "ALLOWED"), len(all), reasons)
	case len(all):
		w.Printf("%s  all %d flows, %s\n", w.Styled(term.Red, "DENIED"), len(all), reasons)
	default:
		w.Printf("%s  %d of %d flows, the others are allowed, %s\n", w.Styled(term.Red, "DENIED"), denied, len(all), reasons)
	}
}

// mostKinds bounds the reasons that a brief answer about several flows gives.
const mostKinds = 3

// maxOthers bounds how many flows are listed that an explanation holds for as well.
const maxOthers = 20

func writeOthers(w *term.Writer, others []view.Explanation) {
	if len(others) == 0 {
		return
	}
	w.Printf("  the same holds for:\n")
	t := &term.Table{Indent: "    "}
	for _, e := range others[:min(len(others), maxOthers)] {
		t.Row(e.Src.Name, "->", e.Dst.Name, e.Flow)
	}
	t.Print(w)
	if more := len(others) - maxOthers; more > 0 {
		w.Printf("    and %s more\n", term.Count(more, "flow"))
	}
}

// Verdict is a verdict in a cell.
func Verdict(allowed bool) term.Cell {
	if allowed {
		return term.Cell{Text: "permit", Style: term.Green}
	}
	return term.Cell{Text: "deny", Style: term.Red}
}
