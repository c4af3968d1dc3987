// Package graph draws who can talk to whom: a model of workloads and the traffic between them, a
// layout, and pictures in several formats. The page of package ui and the commands of sluicectl
// draw the same graph.
//
// # Invariants
//
//   - Verdicts are those of the specification. A change of a state is the exact one of package
//     preview.
//   - A picture is a function of its graph: equal graphs give equal bytes.
//   - Names are texts of others. They are escaped in every format, cannot end what they stand in,
//     and are cut.
package graph

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/preview"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// Kind is what a node stands for.
type Kind string

// The kinds of nodes.
const (
	Workload  Kind = "workload"  // pods that run the same
	Namespace Kind = "namespace" // the workloads in it, or all of its pods where there are too many workloads
	Outside   Kind = "outside"   // addresses outside of the cluster; one node where traffic comes from, one where it goes to
)

// State is what is known of the traffic from one node to another.
type State string

// The states of edges.
const (
	Allowed State = "allowed" // before a change and after it
	Denied  State = "denied"  // on every port that was asked about
	Opened  State = "opened"  // by the change
	Closed  State = "closed"
)

// Node is an end of edges.
type Node struct {
	Name  string `json:"name"`  // "shop/web", "shop", "internet", "outside"
	Label string `json:"label"` // within its namespace: "web"
	Kind  Kind   `json:"kind"`
	// Parent is the index of the node's namespace, or -1.
	Parent int `json:"parent"`
	Pods   int `json:"pods,omitempty"`
}

// Edge is the traffic between two nodes that has one state.
type Edge struct {
	From  int   `json:"from"` // indexes of nodes
	To    int   `json:"to"`
	State State `json:"state"`
	// Ports are those of the destination; "~" begins those that only some pods reach.
	Ports []string `json:"ports"`
	// Why is what decided before a change, and what does after it.
	Why []string `json:"why,omitempty"`
}

// Graph is nodes and edges. A node's parent comes before it.
type Graph struct {
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
	// Notes are what the graph leaves out.
	Notes []string `json:"notes,omitempty"`
	// Compared says that the edges are about a change.
	Compared bool `json:"compared,omitempty"`
}

// Options say what a graph has. The zero value is what is allowed.
type Options struct {
	// Denied adds pairs between which every port that was asked about is closed.
	Denied bool
}

// key identifies a node. What is outside is once a source, and once a destination.
type key struct {
	kind   Kind
	name   string
	source bool
}

// The nodes around what is outside.
const (
	outsideName = "outside"
	fromOutside = "from outside"
	toOutside   = "to outside"
)

// builder collects a graph.
type builder struct {
	Graph
	at map[key]int
}

func newBuilder() *builder { return &builder{at: map[key]int{}} }

// node returns the index of a node, which it adds if it is new. What is outside is a source here,
// or a destination.
func (b *builder) node(kind Kind, name string, isSource bool) int {
	k := key{kind, name, isSource && kind == Outside}
	if i, ok := b.at[k]; ok {
		return i
	}
	n := Node{Name: name, Label: name, Kind: kind, Parent: -1}
	namespace, label, ok := strings.Cut(name, "/")
	switch {
	case kind == Outside && name == outsideName:
		n.Label = toOutside
		if isSource {
			n.Label = fromOutside
		}
	case kind == Outside:
		n.Parent = b.node(Outside, outsideName, isSource)
	case kind == Workload && ok:
		n.Label, n.Parent = label, b.node(Namespace, namespace, false)
	}
	b.at[k] = len(b.Nodes)
	b.Nodes = append(b.Nodes, n)
	return b.at[k]
}

// group returns the node of a group of a matrix.
func (b *builder) group(g matrix.Group, isSource bool) int {
	if g.External {
		return b.node(Outside, g.Name, isSource)
	}
	kind := Workload
	if !strings.Contains(g.Name, "/") {
		kind = Namespace
	}
	i := b.node(kind, g.Name, isSource)
	if b.Nodes[i].Pods == 0 {
		b.Nodes[i].Pods = g.Members
		if p := b.Nodes[i].Parent; p >= 0 {
			b.Nodes[p].Pods += g.Members
		}
	}
	return i
}

// New returns the graph of a matrix.
func New(m matrix.Matrix, o Options) Graph {
	b := newBuilder()
	b.matrix(m, o, func(int, int, matrix.PortReach) bool { return true })
	return b.finish(m)
}

// Compare returns the graph of the state after a change: what it opens and closes, and what was
// allowed before and stays so.
func Compare(was, is matrix.Matrix, differences []preview.Difference, o Options) Graph {
	b, before := newBuilder(), reaches(was)
	b.Compared = true
	b.groups(is)
	opened := b.opened(is, differences)
	b.matrix(is, o, func(from, to int, p matrix.PortReach) bool {
		ends := pair{b.whole(b.group(is.Groups[from], true)), b.whole(b.group(is.Groups[to], false))}
		return !opened[ends] || before[reachKey{is.Groups[from].Name, is.Groups[to].Name, p.Port}] != matrix.None
	})
	for _, d := range differences {
		b.difference(is, d)
	}
	return b.finish(is)
}

// opened returns between which nodes something opens. What is outside counts as a whole, since a
// difference is about other blocks than those of the matrix.
func (b *builder) opened(m matrix.Matrix, differences []preview.Difference) map[pair]bool {
	out := map[pair]bool{}
	for _, d := range differences {
		if d.Change != preview.Opened {
			continue
		}
		for _, from := range b.side(m, d.From, true) {
			for _, to := range b.side(m, d.To, false) {
				out[pair{b.whole(from), b.whole(to)}] = true
			}
		}
	}
	return out
}

// whole returns the node of everything outside for a part of it, and any other node itself.
func (b *builder) whole(i int) int {
	if n := b.Nodes[i]; n.Kind == Outside && n.Parent >= 0 {
		return n.Parent
	}
	return i
}

// reachKey is one port between two groups.
type reachKey struct {
	from, to string
	port     matrix.Port
}

func reaches(m matrix.Matrix) map[reachKey]matrix.Reach {
	out := map[reachKey]matrix.Reach{}
	for i, row := range m.Cells {
		for j, c := range row {
			for _, p := range c.Ports {
				out[reachKey{m.Groups[i].Name, m.Groups[j].Name, p.Port}] = p.Reach
			}
		}
	}
	return out
}

// groups adds the groups of pods.
func (b *builder) groups(m matrix.Matrix) {
	for _, g := range m.Groups {
		if !g.External {
			b.group(g, false)
		}
	}
}

// matrix adds what a matrix has; kept says of an open port whether it is allowed as before.
func (b *builder) matrix(m matrix.Matrix, o Options, kept func(from, to int, p matrix.PortReach) bool) {
	b.groups(m)
	for i := range m.Groups {
		for j := range m.Groups {
			c := m.Cells[i][j]
			if len(c.Ports) == 0 {
				continue // not asked
			}
			e := Edge{From: b.group(m.Groups[i], true), To: b.group(m.Groups[j], false), State: Allowed}
			for _, p := range c.Ports {
				if p.Reach != matrix.None && kept(i, j, p) {
					e.Ports = append(e.Ports, portText(p))
				}
			}
			switch {
			case len(e.Ports) > 0:
				b.Edges = append(b.Edges, e)
			case o.Denied && c.Reach == matrix.None && i != j:
				e.State, e.Ports = Denied, []string{everyPort}
				b.Edges = append(b.Edges, e)
			}
		}
	}
}

// everyPort stands for all ports that were asked about.
const everyPort = "every port"

func portText(p matrix.PortReach) string {
	text := p.Port.String()
	if p.Port == otherPorts {
		text = otherPorts.Name
	}
	if p.Reach == matrix.Some {
		return "~" + text
	}
	return text
}

// difference adds the edges of flows that open or close.
func (b *builder) difference(m matrix.Matrix, d preview.Difference) {
	state, why := Closed, "was allowed: "+d.Was.Text+"; now denied: "+d.Is.Text
	if d.Change == preview.Opened {
		state, why = Opened, "was denied: "+d.Was.Text+"; now allowed: "+d.Is.Text
	}
	ports := slices.Clone(d.Ports)
	if d.Family != "" {
		for i := range ports {
			ports[i] += " (" + d.Family + ")"
		}
	}
	froms, tos := b.side(m, d.From, true), b.side(m, d.To, false)
	for _, from := range froms {
		for _, to := range tos {
			if b.Nodes[from].Kind == Outside && b.Nodes[to].Kind == Outside || !m.Selection.Wants(b.Nodes[from].Name, b.Nodes[to].Name) {
				continue
			}
			b.Edges = append(b.Edges, Edge{From: from, To: to, State: state, Ports: ports, Why: []string{why}})
		}
	}
}

// side returns the nodes of the parties at one end of a difference: each once, namespaces where the
// matrix has these.
func (b *builder) side(m matrix.Matrix, s preview.Side, isSource bool) (out []int) {
	add := func(i int) {
		if !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	for _, g := range s.Groups {
		namespace, _, _ := strings.Cut(g, "/")
		if _, known := b.at[key{kind: Workload, name: g}]; !known && m.Namespaces {
			add(b.node(Namespace, namespace, isSource))
			continue
		}
		add(b.node(Workload, g, isSource))
	}
	for _, text := range s.Outside {
		add(b.node(Outside, text, isSource))
	}
	return out
}

// finish puts edges together, and everything into its order.
func (b *builder) finish(m matrix.Matrix) Graph {
	b.join()
	b.merge()
	b.prune(m.Selection)
	b.sort()
	if m.Namespaces {
		b.Notes = append(b.Notes, "grouped by namespace, a few pods of each asked: choose a namespace to see its workloads")
	}
	if m.Left > 0 {
		b.Notes = append(b.Notes, "left out: "+term.Count(m.Left, "more group"))
	}
	return b.Graph
}

// ends are the ends and the state of an edge.
type ends struct {
	from, to int
	state    State
}

// join makes one edge of those with equal ends and states.
func (b *builder) join() {
	at := map[ends]int{}
	var out []Edge
	for _, e := range b.Edges {
		k := ends{e.From, e.To, e.State}
		i, ok := at[k]
		if !ok {
			at[k] = len(out)
			out = append(out, e)
			continue
		}
		out[i].add(e)
	}
	b.Edges = out
}

// add takes the ports and reasons of another edge.
func (e *Edge) add(o Edge) {
	e.Ports, e.Why = union(e.Ports, o.Ports), union(e.Why, o.Why)
}

func union(a, b []string) []string {
	out := slices.Clip(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// prune removes what is outside, or not asked about, and has no edge. Workloads that are asked
// about stay: that nothing reaches them is worth knowing.
func (b *builder) prune(s matrix.Selection) {
	used := make([]bool, len(b.Nodes))
	for _, e := range b.Edges {
		used[e.From], used[e.To] = true, true
	}
	whole := slices.Clone(used) // an edge of all of them draws each
	for i, n := range b.Nodes {
		if p := n.Parent; p >= 0 && (used[i] || whole[p]) {
			used[i], used[p] = true, true
		}
	}
	to := make([]int, len(b.Nodes))
	var kept []Node
	for i, n := range b.Nodes {
		to[i] = len(kept)
		if used[i] || n.Kind != Outside && (s.IsAll() || s.Names(n.Name)) {
			kept = append(kept, n)
		}
	}
	b.renumber(to, kept)
}

// renumber gives nodes other indexes.
func (b *builder) renumber(to []int, nodes []Node) {
	for i := range nodes {
		if nodes[i].Parent >= 0 {
			nodes[i].Parent = to[nodes[i].Parent]
		}
	}
	b.Nodes = nodes
	for i, e := range b.Edges {
		b.Edges[i].From, b.Edges[i].To = to[e.From], to[e.To]
	}
}

// around tells apart what is outside as a source and as a destination.
func (b *builder) around(n Node) string {
	if n.Parent >= 0 {
		return b.Nodes[n.Parent].Label
	}
	return n.Label
}

// depth orders what is around the addresses outside before these.
func depth(n Node) int {
	if n.Kind == Outside && n.Parent >= 0 {
		return 1
	}
	return 0
}

// sort puts nodes in the order of their names, parents first, and edges in that of their ends.
func (b *builder) sort() {
	rank := map[Kind]int{Namespace: 0, Workload: 0, Outside: 1}
	order := make([]int, len(b.Nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		x, y := b.Nodes[i], b.Nodes[j]
		return cmp.Or(cmp.Compare(rank[x.Kind], rank[y.Kind]), cmp.Compare(depth(x), depth(y)), strings.Compare(x.Name, y.Name), strings.Compare(b.around(x), b.around(y)))
	})
	to := make([]int, len(order))
	nodes := make([]Node, len(order))
	for now, was := range order {
		to[was], nodes[now] = now, b.Nodes[was]
	}
	b.renumber(to, nodes)
	slices.SortStableFunc(b.Edges, func(x, y Edge) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To), strings.Compare(string(x.State), string(y.State)))
	})
}
