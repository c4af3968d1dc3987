package preview

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// mostRows bounds how many differences are written for people.
const mostRows = 100

// Write writes the report for people.
func (r Report) Write(w *term.Writer) {
	for _, d := range r.Differences[:min(len(r.Differences), mostRows)] {
		style, was, is := term.Green, "denied", "allowed"
		if d.Change == Closed {
			style, was, is = term.Red, "allowed", "denied"
		}
		w.Printf("%s  %s -> %s  %s\n", w.Styled(style, string(d.Change)), d.From, d.To, d.where())
		w.Printf("        was %s: %s\n", was, d.Was.Text)
		w.Printf("        now %s: %s\n", is, d.Is.Text)
	}
	if more := len(r.Differences) - mostRows; more > 0 {
		w.Printf("and %s more; -o json has all\n", term.Count(more, "difference"))
	}
	if len(r.Differences) > 0 {
		w.Printf("\n")
	}
	w.Printf("%s\n", r.summary())
	r.writeNodes(w)
	for _, n := range r.Notes {
		w.Printf("note: %s\n", n)
	}
	for _, d := range r.Disagreements {
		w.Printf("%s\n", w.Styled(term.Red, "DISAGREES: "+d))
	}
}

// where names the ports, with the family if it is one.
func (d Difference) where() string {
	text := few(d.Ports, mostNames)
	if d.Family != "" {
		text += " (" + d.Family + ")"
	}
	return text
}

// summary is the report in one line.
func (r Report) summary() string {
	text := "no flow opens or closes"
	if opened, closed := r.count(Opened), r.count(Closed); opened+closed > 0 {
		text = fmt.Sprintf("%d opened, %d closed", opened, closed)
	}
	text += fmt.Sprintf(": %s in %s, %s compared", term.Count(r.Pods, "pod"), term.Count(r.Groups, "group"), term.Count(r.Flows, "flow"))
	if r.Checked > 0 && len(r.Disagreements) == 0 {
		text += fmt.Sprintf("; %s of dataplanes, all as the specification says", term.Count(r.Checked, "verdict"))
	}
	return text
}

func (r Report) writeNodes(w *term.Writer) {
	if len(r.Nodes) == 0 {
		return
	}
	t := term.NewTable(columns...)
	for _, n := range r.Nodes {
		for _, d := range n.Dataplanes {
			row := []any{}
			for _, v := range d.row(n) {
				row = append(row, v)
			}
			if !d.Fits {
				row[len(row)-1] = term.Cell{Text: "NO: " + d.Error, Style: term.Red}
			}
			t.Row(row...)
		}
	}
	w.Printf("\n")
	t.Print(w)
}

// columns are those of the table of dataplanes.
var columns = []string{"NODE", "PODS", "DATAPLANE", "OPERATIONS", "RULES", "ENTRIES", "MEMORY", "FITS"}

func (d Dataplane) row(n Node) []string {
	fits := "limit not given"
	if !d.Fits {
		fits = "NO: " + d.Error
	} else if d.Budget > 0 {
		fits = "yes, of " + size(d.Budget)
	}
	return []string{
		n.Node, fmt.Sprint(n.Pods), d.Renderer, fmt.Sprint(d.Operations), change(d.Before.Rules, d.After.Rules),
		change(d.Before.Entries, d.After.Entries), sizes(d.Before.Memory, d.After.Memory), fits,
	}
}

func change(was, is int) string {
	if was == is {
		return fmt.Sprint(is)
	}
	return fmt.Sprintf("%d -> %d", was, is)
}

func sizes(was, is uint64) string {
	if size(was) == size(is) {
		return size(is)
	}
	return size(was) + " -> " + size(is)
}

// size writes bytes in KiB or MiB.
func size(bytes uint64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(bytes)/1024)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// Markdown writes the report as GitHub shows it in a comment.
func (r Report) Markdown(w *term.Writer) {
	w.Printf("### Network policy: %s\n", markdown(r.summary()))
	if len(r.Differences) > 0 {
		w.Printf("\n| change | from | to | ports | was | now |\n|---|---|---|---|---|---|\n")
	}
	for _, d := range r.Differences[:min(len(r.Differences), mostRows)] {
		sign := ":green_circle:"
		if d.Change == Closed {
			sign = ":red_circle:"
		}
		w.Printf("| %s %s | %s | %s | %s | %s | %s |\n", sign, string(d.Change), markdown(d.From.String()), markdown(d.To.String()), markdown(d.where()), markdown(d.Was.Text), markdown(d.Is.Text))
	}
	if more := len(r.Differences) - mostRows; more > 0 {
		w.Printf("\nand %s more\n", term.Count(more, "difference"))
	}
	if len(r.Nodes) > 0 {
		w.Printf("\n| %s |\n|%s\n", strings.ToLower(strings.Join(columns, " | ")), strings.Repeat("---|", len(columns)))
	}
	for _, n := range r.Nodes {
		for _, d := range n.Dataplanes {
			var cells []string
			for _, c := range d.row(n) {
				cells = append(cells, string(markdown(c)))
			}
			w.Printf("| %s |\n", term.Text(strings.Join(cells, " | ")))
		}
	}
	for _, n := range r.Notes {
		w.Printf("\nnote: %s\n", markdown(n))
	}
	for _, d := range r.Disagreements {
		w.Printf("\n**DISAGREES**: %s\n", markdown(d))
	}
}

// special are the characters that have a meaning in Markdown, or in the HTML that it may hold.
const special = "\\`*_{}[]<>#|!~&$"

// links are the beginnings of what GitHub makes a link or a mention of, also where it is escaped. A
// space without a width goes into them.
var links = regexp.MustCompile(`(?i)(:)(//)|(www)(\.)|([@#])`)

// longest is how long a cell may be in Markdown.
const longest = 1000

// markdown escapes a text so that it is shown as it is: names of others make no links, no images
// and no mentions.
func markdown(text string) term.Text {
	var b strings.Builder
	runes := []rune(links.ReplaceAllString(model.Printable(text), "$1$3$5\u200b$2$4"))
	for _, c := range runes[:min(len(runes), longest)] {
		if strings.ContainsRune(special, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	if len(runes) > longest {
		b.WriteString("…")
	}
	return term.Text(b.String())
}
