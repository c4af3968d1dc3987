// Package matrix computes a reachability matrix: which groups of pods, and some outside addresses,
// may connect to which, on the ports that the destination declares.
//
// # Invariants
//
// A cell is asked packet by packet of whoever is given as the judge; nothing is
// concluded from rules. The result is a function of the endpoints and the judge.
package matrix

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Endpoint is one pod, or one address outside of the cluster.
type Endpoint struct {
	Group    string // what it is shown as, for example "shop/web"
	External bool
	Addrs    []netip.Addr
	Ports    []Port // asked when it is the destination; for externals, of every pod's
}

// Port is a destination port with the name that people know it by.
type Port struct {
	Name     string       `json:"name"`
	Protocol api.Protocol `json:"protocol"`
	Number   uint16       `json:"number"`
}

// Judge reports whether the first packet of a flow is let through.
type Judge func(api.Flow) bool

// Reach is how much of a group is reached.
type Reach uint8

// None, some or all of the pairs of pods.
const (
	None Reach = iota
	Some
	All
)

// String returns "none", "some" or "all".
func (r Reach) String() string { return [...]string{"none", "some", "all"}[r] }

// MarshalText renders the reach as String does.
func (r Reach) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the form that MarshalText writes; anything else is none.
func (r *Reach) UnmarshalText(b []byte) error {
	*r = None
	for _, v := range []Reach{Some, All} {
		if v.String() == string(b) {
			*r = v
		}
	}
	return nil
}

// PortReach is what a group reaches on one port of another.
type PortReach struct {
	Port  Port  `json:"port"`
	Reach Reach `json:"reach"`
}

// Cell is one pair of groups.
type Cell struct {
	Reach Reach       `json:"reach"`
	Ports []PortReach `json:"ports,omitempty"`
	// Change is "opened", "closed" or "both" where a change is shown and some flow of the pair
	// opens or closes by it.
	Change string `json:"change,omitempty"`
}

// The values of Cell.Change.
const (
	ChangeOpened = "opened"
	ChangeClosed = "closed"
	ChangeBoth   = "both"
)

// Mark says of a pair of groups, or of the namespaces that stand for them, that flows open or close
// by a change.
func (m *Matrix) Mark(from, to string, opens bool) {
	i, j := m.row(from), m.row(to)
	if i < 0 || j < 0 {
		return
	}
	change := ChangeClosed
	if opens {
		change = ChangeOpened
	}
	if c := &m.Cells[i][j]; c.Change == "" || c.Change == change {
		c.Change = change
	} else {
		c.Change = ChangeBoth
	}
}

// row returns the index of a group, or of its namespace where there are only namespaces.
func (m *Matrix) row(group string) int {
	named := func(name string) int {
		return slices.IndexFunc(m.Groups, func(g Group) bool { return g.Name == name })
	}
	if i := named(group); i >= 0 || !m.Namespaces {
		return i
	}
	return named(namespaceOf(group))
}

// Group is a row and a column.
type Group struct {
	Name     string `json:"name"`
	External bool   `json:"external,omitempty"`
	Members  int    `json:"members"`
}

// Matrix is the answer: Cells[source][destination].
type Matrix struct {
	Groups []Group  `json:"groups"`
	Cells  [][]Cell `json:"cells"`
	Probes int      `json:"probes"`
	// Left is how many groups were omitted because there were too many.
	Left int `json:"left,omitempty"`
	// Namespaces says that groups are namespaces, because there are too many of what their pods
	// run. Of each a few pods were asked.
	Namespaces bool `json:"namespaces,omitempty"`
	// Selection says which cells were asked; the others are empty.
	Selection Selection `json:"selection,omitzero"`
}

// Limits of one matrix: it is for people to look at.
const (
	maxGroups  = 60
	maxMembers = 3 // of one group; they are alike
	// maxOfNamespace bounds those of a namespace, each of which runs something else.
	maxOfNamespace = 8
)

// Compute asks the judge about every pair of endpoints in different positions that is selected.
func Compute(endpoints []Endpoint, s Selection, judge Judge) Matrix {
	endpoints = s.involved(endpoints)
	groups, members := group(endpoints, maxMembers)
	m := Matrix{Namespaces: len(groups) > maxGroups, Selection: s}
	if m.Namespaces {
		pods := podsOf(groups, s.Names)
		groups, members = group(byNamespace(members, s.Names), maxOfNamespace)
		for i, g := range groups {
			groups[i].Members = pods[g.Name]
		}
	}
	m.Left = max(0, len(groups)-maxGroups)
	groups = groups[:len(groups)-m.Left]
	m.Groups, m.Cells = groups, make([][]Cell, len(groups))
	for i := range groups {
		m.Cells[i] = make([]Cell, len(groups))
		for j := range groups {
			if groups[i].External && groups[j].External || !s.Wants(groups[i].Name, groups[j].Name) {
				continue
			}
			var probes int
			m.Cells[i][j], probes = ask(members[i], members[j], i == j, judge)
			m.Probes += probes
		}
	}
	return m
}

// group sorts endpoints into groups by name, pods before externals, each with so many members at
// most.
func group(endpoints []Endpoint, most int) (groups []Group, members [][]Endpoint) {
	byName := map[string][]Endpoint{}
	for _, e := range endpoints {
		byName[e.Group] = append(byName[e.Group], e)
	}
	for name, m := range byName {
		groups = append(groups, Group{Name: name, External: m[0].External, Members: len(m)})
	}
	slices.SortFunc(groups, func(a, b Group) int {
		if a.External != b.External {
			if a.External {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, g := range groups {
		m := byName[g.Name]
		slices.SortFunc(m, func(a, b Endpoint) int { return slices.CompareFunc(a.Addrs, b.Addrs, netip.Addr.Compare) })
		members = append(members, m[:min(len(m), most)])
	}
	return groups, members
}

// podsOf counts the members of groups by the groups that byNamespace makes of them.
func podsOf(groups []Group, asked func(group string) bool) map[string]int {
	out := map[string]int{}
	for _, g := range groups {
		out[g.grouped(asked)] += g.Members
	}
	return out
}

// grouped returns the group's namespace, unless the group is asked for, or outside.
func (g Group) grouped(asked func(group string) bool) string {
	if g.External || asked(g.Name) {
		return g.Name
	}
	return namespaceOf(g.Name)
}

// byNamespace puts one member of each group into the group of its namespace, but for groups that
// are asked for.
func byNamespace(members [][]Endpoint, asked func(group string) bool) (out []Endpoint) {
	for _, m := range members {
		name := Group{Name: m[0].Group, External: m[0].External}.grouped(asked)
		if name == m[0].Group {
			out = append(out, m...)
			continue
		}
		e := m[0]
		e.Group = name
		out = append(out, e)
	}
	return out
}

// namespaceOf returns the namespace of a group of pods.
func namespaceOf(group string) string {
	namespace, _, _ := strings.Cut(group, "/")
	return namespace
}

// ask fills one cell: every port of the destinations, from every source.
func ask(src, dst []Endpoint, same bool, judge Judge) (Cell, int) {
	var cell Cell
	probes := 0
	for _, port := range ports(dst) {
		asked, open := 0, 0
		for i, s := range src {
			for j, d := range dst {
				if same && i == j || !slices.Contains(d.Ports, port) {
					continue // a pod's traffic to itself does not pass a policy
				}
				a, o := askPair(s, d, port, judge)
				asked, open = asked+a, open+o
			}
		}
		probes += asked
		if asked > 0 {
			cell.Ports = append(cell.Ports, PortReach{Port: port, Reach: reach(open, asked)})
		}
	}
	cell.Reach = overall(cell.Ports)
	return cell, probes
}

// askPair asks about every address family that both sides have.
func askPair(s, d Endpoint, port Port, judge Judge) (asked, open int) {
	for _, sa := range s.Addrs {
		for _, da := range d.Addrs {
			if sa.Is4() != da.Is4() {
				continue
			}
			asked++
			if judge(api.Flow{Src: sa, Dst: da, Protocol: port.Protocol, SrcPort: clientPort, DstPort: port.Number}) {
				open++
			}
		}
	}
	return asked, open
}

// clientPort is an ephemeral source port; no policy looks at it.
const clientPort = 49152

func reach(open, asked int) Reach {
	switch open {
	case 0:
		return None
	case asked:
		return All
	}
	return Some
}

func overall(ports []PortReach) Reach {
	all, none := true, true
	for _, p := range ports {
		all = all && p.Reach == All
		none = none && p.Reach == None
	}
	switch {
	case none:
		return None
	case all:
		return All
	}
	return Some
}

// ports returns the ports that any of the endpoints declares.
func ports(dst []Endpoint) []Port {
	var all []Port
	for _, d := range dst {
		all = append(all, d.Ports...)
	}
	slices.SortFunc(all, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol), strings.Compare(a.Name, b.Name))
	})
	return slices.Compact(all)
}
