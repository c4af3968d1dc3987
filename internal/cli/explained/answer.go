package explained

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// writeExplanation writes the verdict of the specification, and what the renderers
// and dataplanes do about it.
func writeExplanation(w *term.Writer, e view.Explanation, wide bool) {
	head, rest, _ := strings.Cut(e.Oracle.String(), "\n")
	word, tail, _ := strings.Cut(head, " ")
	style := term.Red
	if e.Allowed {
		style = term.Green
	}
	w.Printf("%s %s\n", w.Styled(style, word), w.Styled(term.Bold, tail))
	if doubt := doubts(e); doubt != "" {
		w.Printf("  %s\n", w.Styled(term.Red, doubt))
	}
	const longest = 4096 // of a line; a term may be as long as whoever wrote it wants
	for line := range strings.Lines(rest) {
		w.Printf("%s\n", term.Text(term.Shortened(strings.TrimSuffix(line, "\n"), longest))) // which the oracle has escaped
	}
	named := severalNodes(e)
	for _, a := range e.Renderers {
		writeAnswer(w, e, a, named, wide)
	}
	switch {
	case e.RenderersDiffer:
		w.Printf("  %s\n", w.Styled(term.Red, "the renderers DIFFER from each other"))
	case several(e):
		w.Printf("  the renderers agree with each other\n")
	}
	for _, p := range e.Packets {
		writePacket(w, p, named)
	}
}

// doubts says that the specification is not what is enforced.
func doubts(e view.Explanation) string {
	if !explain.Disagrees(e) && e.RenderersDiffer {
		return "the renderers DIFFER from each other: please report this"
	}
	pending := slices.ContainsFunc(e.Renderers, func(a view.Answer) bool { return a.Pending })
	switch {
	case explain.Disagrees(e) && pending:
		return `what is installed differs: the newest state is not enforced yet, see "sluicectl get status"`
	case explain.Disagrees(e):
		return "what is installed DIFFERS from the specification: please report this"
	case e.Stale != "":
		return "the newest changes may be missing: " + e.Stale
	}
	return ""
}

// several reports whether one node has several renderers that were asked.
func several(e view.Explanation) bool {
	asked := map[string]int{}
	for _, a := range e.Renderers {
		if a.Unasked == "" && len(a.Decides) > 0 {
			asked[a.Node]++
		}
	}
	for _, n := range asked {
		if n > 1 {
			return true
		}
	}
	return false
}

func severalNodes(e view.Explanation) bool {
	return slices.ContainsFunc(e.Renderers, func(a view.Answer) bool { return a.Node != e.Renderers[0].Node })
}

// on names a node where there are several.
func on(node string, named bool) string {
	if !named {
		return ""
	}
	return " on " + node
}

// writeAnswer writes what a renderer's tables do, and which policies they name.
func writeAnswer(w *term.Writer, e view.Explanation, a view.Answer, named, wide bool) {
	who := "renderer " + a.Renderer + on(a.Node, named)
	if named {
		who += ", " + term.Joined(a.Decides)
	}
	if len(a.Decides) == 0 && a.Agrees {
		w.Printf("  %s  neither end is a pod of this node%s\n", who, elsewhere(e, a))
		return
	}
	if a.Unasked != "" {
		w.Printf("  %s  not asked: %s\n", who, a.Unasked)
		return
	}
	v, agrees := Verdict(a.Allowed), standing(a)
	w.Printf("  %s  %s  %s\n", who, w.Styled(v.Style, v.Text), w.Styled(agrees.Style, agrees.Text))
	t := &term.Table{Indent: "    "}
	for i, d := range a.Decisions {
		switch {
		case d.Rule < 0:
			t.Row("table "+d.Table, "no rule matches")
		case i < len(a.Meanings) && !wide:
			t.Row(fmt.Sprintf("rule %d", d.Rule), a.Meanings[i])
		default:
			t.Row(fmt.Sprintf("table %s rule %d", d.Table, d.Rule), d.Match)
		}
	}
	if len(a.Decisions) == 0 {
		t.Row("no table restricts it")
	}
	t.Print(w)
	for _, f := range a.Foreign {
		w.Printf("    %s\n", w.Styled(term.Amber, f))
	}
	writeOrigins(w, a)
	if far := elsewhere(e, a); far != "" && len(a.Decides) == 1 {
		w.Printf("    %s is not decided here%s\n", a.Decides[0].Opposite(), far)
	}
}

// standing returns whether a renderer agrees with the specification, as text.
func standing(a view.Answer) term.Cell {
	switch {
	case a.Agrees:
		return term.Cell{Text: "agrees", Style: term.Green}
	case a.Pending:
		return term.Cell{Text: `not enforced yet: see "sluicectl get status"`, Style: term.Amber}
	}
	return term.Cell{Text: "DISAGREES: please report this", Style: term.Red}
}

// elsewhere names the nodes that decide what this one does not.
func elsewhere(e view.Explanation, a view.Answer) string {
	var nodes []string
	for d, p := range map[api.Direction]view.Party{api.Egress: e.Src, api.Ingress: e.Dst} {
		applies := e.Oracle.Direction(d).Applies
		answered := slices.ContainsFunc(e.Renderers, func(r view.Answer) bool { return r.Node == p.Node })
		if applies && !slices.Contains(a.Decides, d) && p.Node != "" && !answered && !slices.Contains(nodes, p.Node) {
			nodes = append(nodes, p.Node)
		}
	}
	if nodes == nil {
		return ""
	}
	slices.Sort(nodes)
	return ": ask " + strings.Join(nodes, " and ")
}

// roleTexts introduce what a renderer names, by role.
var roleTexts = []struct {
	role view.OriginRole
	text string
}{
	{view.OriginDecides, "because of"},
	{view.OriginPasses, "passed on by"},
	{view.OriginAudits, "counted for audit:"},
	{view.OriginMatches, "it also names, which does not decide"},
	{view.OriginMerged, "the table's rule also stands for, which does not match this flow"},
	{view.OriginBehind, "the table's rule also stands for, which is not asked about this flow"},
	{view.OriginUnknown, "it also names, which isolates neither end in this state"},
}

// writeOrigins says which policies the decisions are ascribed to, and what the
// specification says of each.
func writeOrigins(w *term.Writer, a view.Answer) {
	for _, r := range roleTexts {
		var list []api.Origin
		for _, n := range a.Origins {
			if n.Role == r.role {
				list = append(list, n.Origin)
			}
		}
		if len(list) > 0 {
			w.Printf("    %s: %s\n", r.text, api.OriginTexts(list))
		}
	}
	if len(a.Unnamed) > 0 {
		w.Printf("    not named, though it decides as well: %s\n", api.OriginTexts(a.Unnamed))
	}
}

func writePacket(w *term.Writer, p view.Packet, named bool) {
	if p.Unsent != "" {
		w.Printf("  packet%s  not sent: %s\n", on(p.Node, named), p.Unsent)
		return
	}
	v := Verdict(p.Verdict == api.Permit)
	agrees := term.Cell{Text: "agrees", Style: term.Green}
	if p.Verdict != p.Expected {
		agrees = term.Cell{Text: "DISAGREES: " + p.Reason, Style: term.Red}
	}
	w.Printf("  packet%s  %s  %s\n", on(p.Node, named), w.Styled(v.Style, v.Text), w.Styled(agrees.Style, agrees.Text))
}
