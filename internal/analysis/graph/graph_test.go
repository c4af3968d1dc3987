package graph

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/tests/lab/described"
)

var update = flag.Bool("update", false, "write the pictures in testdata anew")

const shop = "../../../docs/examples/shop"

func matrixOf(t *testing.T, m explain.Manifests, s matrix.Selection) matrix.Matrix {
	t.Helper()
	out, err := Matrix(m, s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// changed is the shop with the edited policy of the guide.
func changed(t *testing.T) Change {
	t.Helper()
	before := described.Read(t, shop)
	c, err := Compute(context.Background(), before, before.With(described.Read(t, "../../../docs/examples/preview/cart.yaml"), nil), matrix.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestGraphOfShop compares every format with a file.
func TestGraphOfShop(t *testing.T) {
	m := matrixOf(t, described.Read(t, shop), matrix.Selection{})
	g := New(m, Options{})
	c := changed(t)
	d := Compare(c.Was, c.Is, c.Differences, Options{})
	for name, draw := range map[string]func(io.Writer) error{
		"shop.svg": g.SVG, "shop.dot": g.DOT, "shop.mermaid": g.Mermaid, "change.svg": d.SVG, "change.dot": d.DOT, "change.mermaid": d.Mermaid,
		"change.html":       func(w io.Writer) error { return d.HTML(w, "Change") },
		"matrix.svg":        func(w io.Writer) error { return MatrixSVG(w, m) },
		"change-matrix.svg": func(w io.Writer) error { return MatrixSVG(w, c.Is) },
		"matrix.html":       func(w io.Writer) error { return MatrixHTML(w, m, "Matrix") },
	} {
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), b.String()); d != "" {
			t.Errorf("%s (-file +drawn):\n%s", name, d)
		}
	}
}

// pairs expands the edges of a graph to single workloads: from, to, state and ports.
func (g Graph) pairs() map[string]bool {
	out, children := map[string]bool{}, g.children()
	members := func(i int) []int {
		if len(children[i]) > 0 {
			return children[i]
		}
		return []int{i}
	}
	for _, e := range g.Edges {
		for _, from := range members(e.From) {
			for _, to := range members(e.To) {
				for _, p := range e.Ports {
					if from != to {
						out[fmt.Sprint(g.Nodes[from].Name, " ", g.Nodes[to].Name, " ", e.State, " ", p)] = true
					}
				}
			}
		}
	}
	return out
}

// TestGraphSaysWhatTheMatrixSays: merged edges stand for exactly the pairs that are open.
func TestGraphSaysWhatTheMatrixSays(t *testing.T) {
	for seed := range uint64(200) {
		m := random(rand.New(rand.NewPCG(seed, 1)))
		want := map[string]bool{}
		for i, row := range m.Cells {
			for j, c := range row {
				for _, p := range c.Ports {
					if p.Reach != matrix.None && i != j {
						want[fmt.Sprint(m.Groups[i].Name, " ", m.Groups[j].Name, " ", Allowed, " ", portText(p))] = true
					}
				}
			}
		}
		if d := cmp.Diff(want, New(m, Options{}).pairs()); d != "" {
			t.Fatalf("seed %d (-matrix +graph):\n%s", seed, d)
		}
	}
}

// random returns a matrix of a few namespaces, some of which are open as a whole.
func random(r *rand.Rand) matrix.Matrix {
	var all []matrix.Endpoint
	http, dns := matrix.Port{Name: "http", Protocol: api.TCP, Number: 80}, matrix.Port{Protocol: api.UDP, Number: 53}
	for ns := range 1 + r.IntN(4) {
		for w := range 1 + r.IntN(4) {
			for p := range 1 + r.IntN(2) {
				all = append(all, matrix.Endpoint{Group: fmt.Sprintf("ns%d/w%d", ns, w), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(ns), byte(w), byte(p + 1)})}, Ports: []matrix.Port{http, dns}[:1+r.IntN(2)]})
			}
		}
	}
	all = append(all, matrix.Endpoint{Group: "internet", External: true, Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.7")}, Ports: []matrix.Port{http}})
	open := map[string]bool{}
	return matrix.Compute(all, matrix.Selection{}, func(f api.Flow) bool {
		a, b := f.Src.As4(), f.Dst.As4()
		for _, k := range []string{fmt.Sprintf("n%d %d", a[1], b[1]), fmt.Sprintf("w%v %v %d", a[1:3], b[1:3], f.DstPort)} {
			if _, ok := open[k]; !ok {
				open[k] = r.IntN(3) == 0
			}
			if open[k] {
				return true
			}
		}
		return false
	})
}

// TestGraphMergesWholeNamespaces to one edge, and nothing else.
func TestGraphMergesWholeNamespaces(t *testing.T) {
	g := New(matrixOf(t, described.Read(t, shop), matrix.Selection{}), Options{})
	var all []string
	for _, e := range g.Edges {
		all = append(all, g.Sentence(e))
	}
	for _, want := range []string{
		"allowed: shop to platform/dns, dns-tcp:53/tcp, dns:53/udp",
		"allowed: platform/prometheus to shop, metrics:9090/tcp",
		"allowed: shop/web to shop/cart, http:8082/tcp",
		"allowed: shop/checkout to 203.0.113.0/24, https:443/tcp",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, strings.Join(all, "\n"))
		}
	}
}

// TestGraphShowsWhatAChangeDoes: exactly what preview finds, and what stays.
func TestGraphShowsWhatAChangeDoes(t *testing.T) {
	c := changed(t)
	g := Compare(c.Was, c.Is, c.Differences, Options{})
	var got []string
	for _, e := range g.Edges {
		if e.State != Allowed {
			got = append(got, fmt.Sprint(e.State, " ", g.Nodes[e.From].Name, " ", g.Nodes[e.To].Name, " ", e.Ports))
		}
		if e.State == Allowed && g.Nodes[e.From].Name == "shop/checkout" && g.Nodes[e.To].Name == "shop/cart" {
			t.Error("what closes is allowed, too")
		}
	}
	want := []string{"closed shop/checkout shop/cart [8082/tcp]", "opened 203.0.113.0/24 except 203.0.113.128/25 shop/cart [8082/tcp]"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	marks := map[string]string{}
	for i, row := range c.Is.Cells {
		for j, cell := range row {
			if cell.Change != "" {
				marks[c.Is.Groups[i].Name+" "+c.Is.Groups[j].Name] = cell.Change
			}
		}
	}
	if d := cmp.Diff(map[string]string{"shop/checkout shop/cart": "closed", "203.0.113.0/24 shop/cart": "opened"}, marks); d != "" {
		t.Errorf("marked cells (-want +got)\n%s", d)
	}
}

// TestGraphKeepsWhatAChangeDoesNotTouch, also where it makes so many workloads that namespaces are
// drawn.
func TestGraphKeepsWhatAChangeDoesNotTouch(t *testing.T) {
	before := described.Read(t, shop)
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Pod, metadata: {name: new-%d, namespace: shop, labels: {app: new-%d}}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}, status: {phase: Running, podIP: 10.10.9.%d, podIPs: [{ip: 10.10.9.%d}]}}\n", i, i, i+1, i+1)
	}
	more := described.Parse(t, b.String())
	for name, both := range map[string][2]explain.Manifests{"more": {before, before.With(more, nil)}, "fewer": {before.With(more, nil), before}} {
		c, err := Compute(context.Background(), both[0], both[1], matrix.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		g, got := Compare(c.Was, c.Is, c.Differences, Options{}), map[string]bool{}
		for _, e := range g.Edges {
			got[fmt.Sprint(g.Nodes[e.From].Name, " ", g.Nodes[e.To].Name, " ", e.State)] = true
		}
		changed := map[string]State{"more": Opened, "fewer": Closed}[name]
		for _, want := range []string{"data platform allowed", "data outside allowed", "internet platform allowed", "shop platform allowed", fmt.Sprint("shop platform ", changed)} {
			if !got[want] {
				t.Errorf("%s: %q is missing in %v", name, want, got)
			}
		}
	}
}

// TestGraphShowsDeniedPairsWhenAsked, and only then.
func TestGraphShowsDeniedPairsWhenAsked(t *testing.T) {
	m := matrixOf(t, described.Read(t, shop), matrix.Selection{Namespace: "data"})
	has := func(g Graph) bool {
		return slices.ContainsFunc(g.Edges, func(e Edge) bool { return e.State == Denied })
	}
	if has(New(m, Options{})) || !has(New(m, Options{Denied: true})) {
		t.Error("denied edges are there unasked, or not there")
	}
}

// TestMatrixAsksAboutPodsWithoutPorts: on the ports that policies name, and on one that none names.
func TestMatrixAsksAboutPodsWithoutPorts(t *testing.T) {
	const text = `
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: demo, labels: {app: a}}, spec: {nodeName: x, containers: [{name: c, image: i}]}, status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: demo, labels: {app: b}}, spec: {nodeName: x, containers: [{name: c, image: i}]}, status: {phase: Running, podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.2}]}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: b, namespace: demo}
spec: {podSelector: {matchLabels: {app: b}}, ingress: [{ports: [{port: 5432}]}], egress: [{ports: [{port: 53, protocol: UDP}]}]}
`
	m := described.Parse(t, text)
	g := New(matrixOf(t, m, matrix.Selection{}), Options{})
	got := map[string][]string{}
	for _, e := range g.Edges {
		t.Log(g.Sentence(e))
		if g.Nodes[e.From].Kind == Workload {
			got[g.Nodes[e.From].Name+" "+g.Nodes[e.To].Name] = e.Ports
		}
	}
	if d := cmp.Diff([]string{"5432/tcp"}, got["demo/a demo/b"]); d != "" {
		t.Errorf("to the isolated pod: %s", d)
	}
	if d := cmp.Diff([]string{"53/udp"}, got["demo/b demo/a"]); d != "" {
		t.Errorf("to the open pod, on what the other one's egress permits: %s", d)
	}
}

// hostile is what a tenant may choose as a name, or a writer of etcd.
var hostile = []string{
	`x"><script>alert(1)</script>`, `"]; n1 -> n2; ["`, "a\x1b[2J\u202eevil\u200b\nend", "#quot; `code` *x* |y| {z}", "]]>&lt;", "bad\xff\xfeutf8",
	strings.Repeat("long<", 1<<18), `back\slash\"`, "", "--", "%%{init}%%",
}

// TestGraphEscapesNames in every format: nothing that a name has ends what it stands in.
func TestGraphEscapesNames(t *testing.T) {
	for _, name := range hostile {
		m := matrix.Matrix{Groups: []matrix.Group{{Name: "ns/" + name, Members: 2}, {Name: name + "/w", Members: 1}, {Name: name, External: true, Members: 1}}}
		for range m.Groups {
			row := make([]matrix.Cell, len(m.Groups))
			for j := range row {
				row[j] = matrix.Cell{Reach: matrix.All, Ports: []matrix.PortReach{{Port: matrix.Port{Name: name, Number: 80, Protocol: api.TCP}, Reach: matrix.All}}}
			}
			m.Cells = append(m.Cells, row)
		}
		g := New(m, Options{})
		g.Compared, g.Notes = true, []string{name}
		g.Edges[0].Why = []string{name}
		for format, draw := range map[string]func(io.Writer) error{
			"svg": g.SVG, "dot": g.DOT, "mermaid": g.Mermaid, "html": func(w io.Writer) error { return g.HTML(w, name) },
			"matrix svg": func(w io.Writer) error { return MatrixSVG(w, m) }, "matrix html": func(w io.Writer) error { return MatrixHTML(w, m, name) },
		} {
			var b bytes.Buffer
			if err := draw(&b); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			if strings.Contains(text, "<script") && format != "dot" || len(text) > 100<<10 {
				t.Errorf("%s of %.40q has a script, or %d bytes", format, name, len(text))
			}
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) || r == unicode.ReplacementChar }); i >= 0 {
				t.Errorf("%s of %.40q has the character %q", format, name, text[i])
			}
			switch format {
			case "svg", "matrix svg":
				wellFormed(t, text)
			case "dot":
				quotesClose(t, text)
			case "mermaid":
				if n := strings.Count(text, `"`); n%2 != 0 || n != strings.Count(text, "[\"")+strings.Count(text, "\"]")+strings.Count(text, "|\"")+strings.Count(text, "\"|") {
					t.Errorf("quotes of %.40q are not those of labels:\n%s", name, text)
				}
			}
		}
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	for dec := xml.NewDecoder(strings.NewReader(text)); ; {
		switch _, err := dec.Token(); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			t.Errorf("not well-formed: %v", err)
			return
		}
	}
}

// quotesClose reports lines of DOT on which a string does not end.
func quotesClose(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		in := false
		for i := 0; i < len(line); i++ {
			switch {
			case line[i] == '\\' && in:
				i++
			case line[i] == '"':
				in = !in
			}
		}
		if in {
			t.Errorf("a string does not end: %.200s", line)
		}
	}
}

// TestLayoutKeepsBoxesApart: siblings do not overlap, children are in their parents, and all is in
// the picture.
func TestLayoutKeepsBoxesApart(t *testing.T) {
	for seed := range uint64(100) {
		g := New(random(rand.New(rand.NewPCG(seed, 2))), Options{Denied: seed%2 == 0})
		l := g.Layout()
		for i, a := range l.Boxes {
			if a.X < 0 || a.Y < 0 || a.X+a.W > l.Width || a.Y+a.H > l.Height {
				t.Fatalf("seed %d: %s is outside of the picture", seed, g.Nodes[i].Name)
			}
			if p := g.Nodes[i].Parent; p >= 0 {
				if b := l.Boxes[p]; a.X < b.X || a.Y < b.Y+headerHeight || a.X+a.W > b.X+b.W || a.Y+a.H > b.Y+b.H {
					t.Fatalf("seed %d: %s is not in its namespace", seed, g.Nodes[i].Name)
				}
			}
			for j, b := range l.Boxes[:i] {
				if g.Nodes[i].Parent == g.Nodes[j].Parent && a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Fatalf("seed %d: %s and %s overlap", seed, g.Nodes[i].Name, g.Nodes[j].Name)
				}
			}
		}
	}
}

// TestGraphOfNothing: an empty cluster has a picture in every format.
func TestGraphOfNothing(t *testing.T) {
	g := New(matrix.Matrix{}, Options{})
	for _, draw := range []func(io.Writer) error{g.SVG, g.DOT, g.Mermaid, func(w io.Writer) error { return g.HTML(w, "") }, func(w io.Writer) error { return MatrixSVG(w, matrix.Matrix{}) }} {
		var b bytes.Buffer
		if err := draw(&b); err != nil || b.Len() == 0 {
			t.Errorf("%d bytes, %v", b.Len(), err)
		}
	}
}
