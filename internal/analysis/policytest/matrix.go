package policytest

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/expr"
)

// matrixPlan is a matrix in the state of one step. An end is a party at one of
// its addresses, so that pairs without a common family drop out by themselves.
type matrixPlan struct {
	path string
	ends []end
	// inside is how many of the ends are the matrix's own. Behind them are those
	// that only allow entries name: what an entry lists is asked as well outside
	// of the matrix, but nothing there is expected to be denied.
	inside int
	ports  []Port // as listed; names stand for other numbers at every end
	allow  []allowPlan
	buffer []check // of one pair, used again for the next
}

// end is one row and column.
type end struct {
	Endpoint
	party party
}

// allowPlan is an allow entry. from and to are indexed like the ends.
type allowPlan struct {
	path     string
	from, to []bool
	ports    []Port
	at       map[int][]Port // ports as numbers, by destination
	all      bool
	asked    bool // it allowed something that was asked
}

// numbers returns the ports of the entry at a destination.
func (a *allowPlan) numbers(j int, dst party) []Port {
	ports, ok := a.at[j]
	if !ok {
		ports = resolvePorts(dst, a.ports)
		a.at[j] = ports
	}
	return ports
}

// matrix yields the checks of a matrix, false when it was stopped.
func (x *expansion) matrix(path string, m *Matrix, yield func(check) bool) bool {
	problems, asked := len(x.problems), 0
	plan := x.plan(path, m)
	universe := make([][]Port, len(plan.ends)) // of each destination
	for i, e := range plan.ends {
		universe[i] = resolvePorts(e.party, plan.ports)
	}
	x.requireNames(plan)
	for i := range plan.ends {
		for j := range plan.ends {
			if !plan.ends[i].reaches(plan.ends[j]) {
				continue
			}
			checks := plan.pair(i, j, universe[j])
			asked += len(checks)
			for _, c := range checks {
				if !yield(c) {
					return false
				}
			}
		}
	}
	for _, a := range plan.allow {
		if !a.asked {
			x.failf(a.path, "allows nothing: there is no pair of two different ends, one of them a pod, with a common address family and one of the ports")
		}
	}
	if asked == 0 && len(x.problems) == problems {
		x.failf(path, "asks nothing: there is no pair of two different ends with a common address family, or no port")
	}
	return true
}

// reaches reports whether a matrix asks about a pair: not of a pod with itself, not
// of two addresses that are no pods, and only where packets can exist.
func (e end) reaches(o end) bool {
	if e.Pod == (api.PodID{}) {
		return o.Pod != (api.PodID{}) && sameFamily(e.Endpoint, o.Endpoint)
	}
	return e.Pod != o.Pod && sameFamily(e.Endpoint, o.Endpoint)
}

// plan resolves everything that the matrix names.
func (x *expansion) plan(path string, m *Matrix) *matrixPlan {
	pl := &matrixPlan{path: path, ports: m.Ports}
	index := map[Endpoint]int{}
	add := func(parties []party) []int {
		var out []int
		for _, p := range parties {
			for _, e := range p.endpoints() {
				key := Endpoint{Pod: e.Pod, Addr: e.Addr}
				if _, ok := index[key]; !ok {
					index[key] = len(pl.ends)
					pl.ends = append(pl.ends, end{e, p})
				}
				out = append(out, index[key])
			}
		}
		return out
	}
	pods := m.Pods
	if pods == nil {
		pods = []Expr{allPods}
	}
	add(x.resolve(path+".pods", pods))
	for _, name := range m.Externals {
		add(x.world.external(Expr{Endpoint: expr.Endpoint{Text: name}, external: x.file.Externals[name]}))
	}
	pl.inside = len(pl.ends)
	var from, to [][]int
	for i, a := range m.Allow {
		at := fmt.Sprintf("%s.allow[%d]", path, i)
		from = append(from, add(x.resolve(at+".from", a.From)))
		to = append(to, add(x.resolve(at+".to", a.To)))
		pl.allow = append(pl.allow, allowPlan{path: at, ports: a.Ports, all: a.AllPorts, at: map[int][]Port{},
			// What did not resolve is a problem already.
			asked: len(from[i]) == 0 || len(to[i]) == 0})
	}
	for i := range pl.allow {
		pl.allow[i].from, pl.allow[i].to = membership(from[i], len(pl.ends)), membership(to[i], len(pl.ends))
	}
	if m.Ports == nil {
		pl.ports = pl.declared(m.Allow)
	}
	return pl
}

var allPods, _ = parseExpr("*/*", nil)

func membership(indexes []int, n int) []bool {
	out := make([]bool, n)
	for _, i := range indexes {
		out[i] = true
	}
	return out
}

// declared returns the ports of a matrix that lists none: those that its pods
// declare, by number, and those that its entries allow.
func (pl *matrixPlan) declared(allow []AllowEntry) []Port {
	seen := map[Port]bool{}
	var out []Port
	add := func(p Port) {
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	for _, e := range pl.ends[:pl.inside] {
		if e.party.pod != nil {
			for _, p := range e.party.pod.ports {
				add(Port{Number: p.Number, Protocol: p.Protocol})
			}
		}
	}
	for _, a := range allow {
		for _, p := range a.Ports {
			add(p)
		}
	}
	return out
}

// requireNames reports ports of the matrix whose name cannot be resolved at any of its ends.
func (x *expansion) requireNames(pl *matrixPlan) {
	for _, port := range pl.ports {
		if port.Name != "" && !slices.ContainsFunc(pl.ends, func(e end) bool {
			numbers, err := e.party.numbers(port)
			return err == nil && len(numbers) > 0
		}) {
			x.failf(pl.path+".ports", "no pod of the matrix has a %s port with the name %s", protocolName(port.Protocol), port.Name)
		}
	}
}

// resolvePorts returns the numbers that ports stand for at a destination, each
// once. Names that it does not have are left out.
func resolvePorts(p party, ports []Port) []Port {
	var out []Port
	seen := map[Port]bool{}
	for _, port := range ports {
		numbers, err := p.numbers(port)
		if err != nil {
			continue
		}
		for _, n := range numbers {
			if key := (Port{Number: n.Number, Protocol: n.Protocol}); !seen[key] {
				seen[key] = true
				out = append(out, n)
			}
		}
	}
	return out
}

// pair returns the checks between two ends. They are good until the next call.
func (pl *matrixPlan) pair(i, j int, universe []Port) []check {
	out := pl.buffer[:0]
	if i < pl.inside && j < pl.inside {
		for _, port := range universe {
			out = append(out, pl.check(i, j, port, Deny, pl.path))
		}
	}
	for k := range pl.allow {
		a := &pl.allow[k]
		if !a.from[i] || !a.to[j] {
			continue
		}
		ports := universe
		if !a.all {
			ports = a.numbers(j, pl.ends[j].party)
		}
		a.asked = a.asked || len(ports) > 0
		for n, port := range ports {
			out = pl.allowing(out, n, i, j, port, a.path)
		}
	}
	pl.buffer = out
	return out
}

// allowing turns the check of a port around, or adds it where the matrix does not
// ask about the port. With "all" the n-th port is that of the n-th check.
func (pl *matrixPlan) allowing(checks []check, n, i, j int, port Port, path string) []check {
	is := func(c check) bool { return c.port.Number == port.Number && c.port.Protocol == port.Protocol }
	if n >= len(checks) || !is(checks[n]) {
		n = slices.IndexFunc(checks, is)
	}
	if n < 0 {
		return append(checks, pl.check(i, j, port, Allow, path))
	}
	if checks[n].expect == Deny {
		checks[n].expect, checks[n].position = Allow, path
	}
	return checks
}

func (pl *matrixPlan) check(i, j int, port Port, expect Verdict, path string) check {
	return check{question: question(pl.ends[i].Endpoint, pl.ends[j].Endpoint, port), port: port, expect: expect, position: path}
}
