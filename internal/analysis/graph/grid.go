package graph

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/sluice-net/sluice/internal/analysis/matrix"
)

// reachSign and reachClass show a cell by form and by colour.
var (
	reachSign  = map[matrix.Reach]string{matrix.None: "·", matrix.Some: "◐", matrix.All: "●"}
	changeSign = map[string]string{matrix.ChangeOpened: "+", matrix.ChangeClosed: "−", matrix.ChangeBoth: "±"}
	changeIs   = map[string]State{matrix.ChangeOpened: Opened, matrix.ChangeClosed: Closed, matrix.ChangeBoth: Denied}
)

// cellSign returns how a cell is shown, and the class of its colour.
func cellSign(c matrix.Cell) (sign, class string) {
	switch {
	case c.Change != "":
		return changeSign[c.Change], "text-" + string(changeIs[c.Change])
	case len(c.Ports) == 0:
		return "", "muted"
	case c.Reach == matrix.None:
		return reachSign[c.Reach], "muted"
	}
	return reachSign[c.Reach], "text-" + string(Allowed)
}

// cellText says in words what a cell is.
func cellText(m matrix.Matrix, i, j int) string {
	c := m.Cells[i][j]
	text := fmt.Sprintf("%s to %s: ", shown(m.Groups[i].Name), shown(m.Groups[j].Name))
	var open []string
	for _, p := range c.Ports {
		if p.Reach != matrix.None {
			open = append(open, portText(p))
		}
	}
	switch {
	case len(c.Ports) == 0:
		text += "not asked"
	case len(open) == 0:
		text += "nothing"
	default:
		text += few(open, mostPortTexts)
	}
	if c.Change != "" {
		text += " (changed: " + c.Change + ")"
	}
	return text
}

// legend explains the signs of a matrix.
func legend(m matrix.Matrix) string {
	text := "● every port that the destination declares   ◐ some   · none"
	for _, row := range m.Cells {
		for _, c := range row {
			if c.Change != "" {
				return text + "   + something opens   − something closes   ± both"
			}
		}
	}
	return text
}

// MatrixSVG writes a matrix as a picture: rows are sources, columns destinations.
func MatrixSVG(w io.Writer, m matrix.Matrix) error {
	const cell = 24
	label := 0
	for _, g := range m.Groups {
		label = max(label, int(float64(len([]rune(cut(shown(g.Name), mostLabel))))*charWidth))
	}
	left, top := margin+label+44, margin+label*7/10+40
	width, height := max(left+cell*len(m.Groups)+label*7/10+margin, 560), top+cell*len(m.Groups)+56
	p := &printer{w: w}
	p.f(`<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<svg xmlns="http://www.w3.org/2000/svg" class="sluice" role="img" aria-label="Who can talk to whom: %d groups" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n<style>%s</style>\n",
		len(m.Groups), width, height, width, height, style)
	for i, g := range m.Groups {
		name := markup(cut(shown(g.Name), mostLabel))
		p.f(`<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-12, top+i*cell+17, name)
		p.f(`<text transform="translate(%d %d) rotate(-45)">%s</text>`+"\n", left+i*cell+15, top-8, name)
	}
	for i := range m.Groups {
		for j := range m.Groups {
			sign, class := cellSign(m.Cells[i][j])
			p.f(`<g><title>%s</title><rect class="group" x="%d" y="%d" width="%d" height="%d"/>`, markup(cellText(m, i, j)), left+j*cell, top+i*cell, cell, cell)
			p.f(`<text class="%s" x="%d" y="%d" text-anchor="middle">%s</text></g>`+"\n", class, left+j*cell+cell/2, top+i*cell+17, sign)
		}
	}
	p.f(`<text class="muted" x="%d" y="%d" xml:space="preserve">%s</text>`+"\n</svg>\n", margin, height-20, markup(legend(m)))
	return p.err
}

// pageStyle is the style of HTML around a picture.
const pageStyle = `
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif;margin:0 auto;padding:1.5rem;max-width:90rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse}th,td{border:1px solid #8886;padding:.25rem .6rem;text-align:left;vertical-align:top}
thead th{position:sticky;top:0;background:Canvas}.picture{overflow:auto;border:1px solid #8886;border-radius:.5rem}.picture svg{display:block;max-width:100%;height:auto}
.grid td{text-align:center;min-width:1.4rem}.grid thead th+th{writing-mode:vertical-rl;rotate:180deg;max-height:16rem;overflow:hidden}.text-allowed{color:#3f6fb5}.text-opened{color:#15803d;font-weight:700}.text-closed{color:#c62828;font-weight:700}
@media(prefers-color-scheme:dark){.text-allowed{color:#7fa9e8}.text-opened{color:#56c878}.text-closed{color:#ff7d74}}
`

// HTML writes the graph as a document without scripts: the picture, and the same as a table.
func (g Graph) HTML(w io.Writer, title string) error {
	p := &printer{w: w}
	head(p, title)
	p.f("<p>%s.</p>\n<div class=\"picture\">\n", markup(g.summary()))
	g.svg(p)
	p.f("</div>\n<h2>As a table</h2>\n<table><thead><tr><th scope=\"col\">State</th><th scope=\"col\">From</th><th scope=\"col\">To</th><th scope=\"col\">Ports</th>")
	if g.Compared {
		p.f("<th scope=\"col\">Why</th>")
	}
	p.f("</tr></thead>\n<tbody>\n")
	for _, e := range g.changesFirst() {
		p.f(`<tr><td class="text-%s">%s</td><td>%s</td><td>%s</td><td>%s</td>`, e.State, e.State, markup(g.Nodes[e.From].fullLabel()), markup(g.Nodes[e.To].fullLabel()), markup(few(e.Ports, 20)))
		if g.Compared {
			p.f("<td>%s</td>", markup(few(e.Why, 3)))
		}
		p.f("</tr>\n")
	}
	p.f("</tbody></table>\n</main></body></html>\n")
	return p.err
}

// MatrixHTML writes a matrix as a document without scripts.
func MatrixHTML(w io.Writer, m matrix.Matrix, title string) error {
	p := &printer{w: w}
	head(p, title)
	p.f("<p>%s</p>\n<table class=\"grid\"><thead><tr><th scope=\"col\">from \\ to</th>", markup(legend(m)))
	for _, g := range m.Groups {
		p.f("<th scope=\"col\">%s</th>", markup(g.Name))
	}
	p.f("</tr></thead>\n<tbody>\n")
	for i, g := range m.Groups {
		p.f(`<tr><th scope="row">%s</th>`, markup(g.Name))
		for j := range m.Groups {
			sign, class := cellSign(m.Cells[i][j])
			p.f(`<td class="%s" title="%s">%s</td>`, class, markup(cellText(m, i, j)), sign)
		}
		p.f("</tr>\n")
	}
	p.f("</tbody></table>\n</main></body></html>\n")
	return p.err
}

// head begins a document, which loads nothing and runs nothing.
func head(p *printer, title string) {
	p.f("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n")
	p.f("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src %s %s\">\n", hashOf(pageStyle), hashOf(style))
	p.f("<title>%s</title><style>%s</style></head>\n<body><main><h1>%s</h1>\n", markup(title), pageStyle, markup(title))
}

// hashOf returns what a Content-Security-Policy names an inline style by.
func hashOf(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
