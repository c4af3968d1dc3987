package explained

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// MostBrief is how many lines a brief explanation has at most.
const MostBrief = 10

// briefLine is a line below the verdict.
type briefLine struct {
	label, text string
	style       term.Style
}

// writeBrief writes the verdict, what decides at each end and the rule that came nearest, one fix,
// and whether what is installed agrees: MostBrief lines at most. On a terminal the fix is wrapped,
// and other lines, too, as long as there are lines left; what is too long then is cut.
func writeBrief(w *term.Writer, e view.Explanation) {
	writeHead(w, e)
	lines := sideLines(e)
	if lines == nil && e.Oracle.Reason != "" {
		lines = append(lines, briefLine{"", e.Oracle.Reason, term.Plain})
	}
	if by := e.Oracle.WouldDeny(); len(by) > 0 {
		lines = append(lines, briefLine{"audit", api.OriginTexts(by), term.Amber})
	}
	var end []briefLine
	doubt := doubts(e)
	if doubt != "" {
		end = append(end, briefLine{"tables", doubt, term.Red})
	} else if text := installed(e); text != "" {
		end = append(end, briefLine{"tables", text, term.Plain})
	}
	left := MostBrief - 1 - len(lines) - len(end)
	fix := fixLines(e, w.Width(), left)
	lines = append(lines, fix...)
	if n := len(e.Oracle.Notes); n > 0 && lines != nil && left > len(fix) {
		note := e.Oracle.Notes[0]
		if n > 1 {
			note += fmt.Sprintf(" (and %s more)", term.Count(n-1, "note"))
		}
		lines = append(lines, briefLine{"note", note, term.Plain})
	}
	all := append(lines, end...)
	if doubt == "" && excess(all, w.Width()) > 0 {
		all = lines // that something agrees is what there is room for last
	}
	whole := roomFor(all, w.Width())
	for i, l := range all {
		texts := []string{term.Shortened(l.text, w.Width()-briefIndent)}
		if whole[i] {
			texts = wrapped(l.text, w.Width()-briefIndent)
		}
		for _, text := range texts {
			w.Printf("%s\n", w.Styled(l.style, fmt.Sprintf("  %-8s %s", l.label, text)))
			l.label = ""
		}
	}
}

// nearest begins the line about the rule that came nearest.
const nearest = "nearest: "

// roomFor returns which lines are wrapped instead of cut: first those about rules that came near.
func roomFor(lines []briefLine, width int) []bool {
	whole, spare := make([]bool, len(lines)), MostBrief-1-len(lines)
	for _, wanted := range []string{`: not "`, nearest, ""} {
		for i, l := range lines {
			more := len(wrapped(l.text, width-briefIndent)) - 1
			if !whole[i] && strings.Contains(l.text, wanted) && more <= spare {
				whole[i], spare = true, spare-more
			}
		}
	}
	return whole
}

// excess returns how many lines there are too many where all are wrapped.
func excess(lines []briefLine, width int) int {
	n := 1 - MostBrief
	for _, l := range lines {
		n += len(wrapped(l.text, width-briefIndent))
	}
	return n
}

// briefIndent is how far the text of a line stands from its begin.
const briefIndent = 11

// writeHead writes the verdict on a flow.
func writeHead(w *term.Writer, e view.Explanation) {
	word, tail, _ := strings.Cut(e.Oracle.Short(), " ")
	style := term.Red
	if e.Allowed {
		style = term.Green
	}
	w.Printf("%s %s\n", w.Styled(style, word), w.Styled(term.Bold, tail))
}

// sideLines say what each end says.
func sideLines(e view.Explanation) (out []briefLine) {
	for _, s := range e.Oracle.Sides() {
		text, style := "allowed  "+s.Because, term.Plain
		if !s.Allowed {
			text, style = "DENIED   "+s.Because, term.Red
		}
		out = append(out, briefLine{s.Direction.String(), text, style})
		if s.Nearest != "" {
			out = append(out, briefLine{"", nearest + s.Nearest, term.Plain})
		}
	}
	return out
}

// fixLines wrap the smallest change to a width, in so many lines at most.
func fixLines(e view.Explanation, width, most int) (out []briefLine) {
	label := "fix"
	for _, part := range e.Oracle.Fix() {
		for _, text := range wrapped(part, width-briefIndent) {
			out = append(out, briefLine{label, text, term.Plain})
			label = ""
		}
	}
	if most = max(most, 1); len(out) > most {
		out[most-1].text, out = "... -v shows all of it", out[:most]
	}
	return out
}

// wrapped breaks a text at spaces into lines of so many characters, where there is a width.
func wrapped(text string, width int) []string {
	const least = 20 // narrower text is unreadable
	if width < least || len(text) <= width {
		return []string{text}
	}
	var out []string
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			out, line = append(out, line), "  "+word
		default:
			line += " " + word
		}
	}
	return append(out, line)
}

// installed says that what is installed agrees, or who has to be asked.
func installed(e view.Explanation) string {
	var agree, others []string
	named := severalNodes(e)
	for _, a := range e.Renderers {
		who := a.Renderer + on(a.Node, named)
		switch {
		case a.Unasked != "":
			others = append(others, who+" not asked: "+a.Unasked)
		case len(a.Decides) == 0:
			others = append(others, "neither end is a pod of this node"+elsewhere(e, a))
		default:
			agree = append(agree, who)
			if far := elsewhere(e, a); far != "" {
				others = append(others, a.Decides[0].Opposite().String()+" is not decided here"+far)
			}
		}
		others = append(others, a.Foreign...)
	}
	if len(agree) > 0 {
		text := "agree: " + strings.Join(agree, ", ")
		if n := len(e.Packets); n > 0 {
			text += fmt.Sprintf("; %s sent, treated so", term.Count(n, "packet"))
		}
		others = append([]string{text}, others...)
	}
	return strings.Join(slices.Compact(others), "; ")
}

// writeAlso says for how many flows more an explanation holds.
func writeAlso(w *term.Writer, others []view.Explanation) {
	if len(others) == 0 {
		return
	}
	const named = 2
	var texts []string
	for _, e := range others[:min(named, len(others))] {
		texts = append(texts, fmt.Sprintf("%s -> %s", e.Src.Name, e.Dst.Name))
	}
	if more := len(others) - named; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	text := "  and so   " + strings.Join(texts, ", ")
	w.Printf("%s\n", term.Shortened(text, w.Width()))
}
