package policytest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/expr"
)

// party is what an expression resolves to: a pod, or an address outside of the
// cluster. A pod in the host network is a party without a pod: it is its node.
type party struct {
	name  string
	pod   *pod
	addrs []netip.Addr // one or more
	// single says that the expression names this party, and does not select it.
	single bool
}

// endpoints returns the party at each of its addresses.
func (p party) endpoints() []Endpoint {
	out := make([]Endpoint, len(p.addrs))
	for i, a := range p.addrs {
		out[i] = Endpoint{Name: p.name, Addr: a}
		if p.pod != nil {
			out[i].Pod = p.pod.id
		}
	}
	return out
}

func podParty(p *pod) party {
	if p.hostNetwork {
		return party{name: p.id.String(), addrs: p.addrs}
	}
	return party{name: p.id.String(), pod: p, addrs: p.addrs}
}

// resolution is what an expression resolved to, or why it resolves to nothing.
type resolution struct {
	parties []party
	err     error
}

// resolve returns the parties that an expression stands for, sorted, at least one.
func (w *world) resolve(e Expr) ([]party, error) {
	switch {
	case e.Addr.IsValid():
		return w.partiesAt(e.Text, e.Addr), nil
	case e.external != nil:
		return w.external(e), nil
	case !e.Selects():
		return w.named(e)
	}
	// The only look-up that visits many pods, and often asked for again.
	r, ok := w.resolved[e.Text]
	if !ok {
		r.parties, r.err = w.selection(e)
		w.resolved[e.Text] = r
	}
	return r.parties, r.err
}

// partiesAt returns the pods that have an address, or the address when none has it.
func (w *world) partiesAt(name string, addr netip.Addr) []party {
	var out []party
	for _, p := range w.holders[addr] {
		out = append(out, party{name: name, pod: p, addrs: []netip.Addr{addr}, single: true})
	}
	if out == nil {
		return []party{{name: name, addrs: []netip.Addr{addr}, single: true}}
	}
	slices.SortFunc(out, func(a, b party) int { return a.pod.id.Compare(b.pod.id) })
	return out
}

// external returns the addresses of a name as one party, those of pods apart.
func (w *world) external(e Expr) []party {
	outside := party{name: e.Text, single: true}
	var out []party
	for _, a := range e.external {
		if len(w.holders[a]) > 0 {
			out = append(out, w.partiesAt(e.Text, a)...)
		} else {
			outside.addrs = append(outside.addrs, a)
		}
	}
	if len(outside.addrs) > 0 {
		out = append(out, outside)
	}
	return out
}

// named returns one pod.
func (w *world) named(e Expr) ([]party, error) {
	p := w.pods[e.Namespace][e.Name]
	switch {
	case p == nil:
		return nil, fmt.Errorf("there is no pod %s/%s", e.Namespace, e.Name)
	case p.finished:
		return nil, fmt.Errorf("pod %s has finished and has no address any more", p.id)
	case len(p.addrs) == 0:
		return nil, fmt.Errorf("pod %s has no address yet", p.id)
	}
	out := podParty(p)
	out.single = true
	return []party{out}, nil
}

// selection returns the live pods that policies see and that the expression
// selects.
func (w *world) selection(e Expr) ([]party, error) {
	namespaces := []string{e.Namespace}
	if e.Namespace == expr.Everywhere {
		namespaces = sortedKeys(w.pods)
	}
	var out []party
	hidden := 0
	for _, ns := range namespaces {
		for _, name := range slices.Sorted(maps.Keys(w.pods[ns])) {
			p := w.pods[ns][name]
			switch {
			case e.Selector == nil && e.Name != name, e.Selector != nil && !e.Selector.Matches(p.labels):
			case len(p.ownAddresses()) == 0:
				hidden++
			default:
				out = append(out, podParty(p))
			}
		}
	}
	if out == nil && hidden > 0 {
		return nil, fmt.Errorf("%s selects no live pod: what it selects has no address, has finished, or is in the host network (name that by namespace/pod)", expr.Quoted(e.Text))
	}
	if out == nil {
		return nil, fmt.Errorf("%s selects no pod", expr.Quoted(e.Text))
	}
	return out, nil
}

// all resolves a list of expressions; no party is there twice. What does not
// resolve is handed to fail.
func (w *world) all(exprs []Expr, fail func(error)) []party {
	var out []party
	seen := map[Endpoint]bool{}
	for _, e := range exprs {
		parties, err := w.resolve(e)
		if err != nil {
			fail(err)
		}
		for _, p := range parties {
			key := p.endpoints()[0]
			key.Name = ""
			if len(p.addrs) > 1 {
				key.Addr = netip.Addr{}
				key.Name = p.name
			}
			if !seen[key] {
				seen[key] = true
				out = append(out, p)
			}
		}
	}
	return out
}

// numbers returns the ports that a port stands for at a party: itself, or what
// its name stands for.
func (p party) numbers(port Port) ([]Port, error) {
	if port.Name == "" {
		return []Port{port}, nil
	}
	if p.pod == nil {
		return nil, fmt.Errorf("%s is not a pod that policies see: its named port %s cannot be resolved", p.name, port.Name)
	}
	numbers := p.pod.named(port.Name, port.Protocol)
	if len(numbers) == 0 {
		return nil, fmt.Errorf("pod %s has no %s port with the name %s", p.pod.id, protocolName(port.Protocol), port.Name)
	}
	out := make([]Port, len(numbers))
	for i, n := range numbers {
		out[i] = Port{Number: n, Name: port.Name, Protocol: port.Protocol}
	}
	return out, nil
}

// protocolName returns the name as Kubernetes writes it. ICMP is one name for the
// protocols of both families.
func protocolName(p api.Protocol) string {
	if p == api.ICMPv6 {
		p = api.ICMP
	}
	return strings.ToUpper(p.String())
}
