// Package secgrouptest has a Neutron in memory, which evaluates security groups as their
// documentation says and knows nothing of how rules are made, and a renderer over it.
package secgrouptest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/secgroup"
)

// ErrInjected is the error of a call that FailNext made fail.
var ErrInjected = errors.New("injected failure")

// Neutron holds groups, address groups and ports. Any goroutine may use it.
type Neutron struct {
	// Late makes calls that fail have their effect nevertheless, as when an answer is lost.
	Late bool
	// Hook is called before each change, and its error returned instead of the change. nil: none.
	Hook func(secgroup.Op) error

	mu      sync.Mutex
	groups  map[string]*secgroup.Group
	addrs   map[string]*secgroup.AddressGroup
	ports   map[string]*secgroup.Port
	created int
	ops     []secgroup.Op
	reads   int
	failAt  int
}

// NewNeutron returns a Neutron with one foreign group, named "default", that permits everything.
func NewNeutron() *Neutron {
	n := &Neutron{groups: map[string]*secgroup.Group{}, addrs: map[string]*secgroup.AddressGroup{}, ports: map[string]*secgroup.Port{}}
	g := n.createGroup("default")
	for _, v6 := range []bool{false, true} {
		g.Rules = append(g.Rules, secgroup.InstalledRule{ID: n.id("rule"), Rule: secgroup.Rule{Direction: api.Ingress, IPv6: v6}})
	}
	return n
}

// Default is the ID of the foreign group that permits everything.
const Default = "group-1"

func (n *Neutron) id(kind string) string {
	n.created++
	return fmt.Sprintf("%s-%d", kind, n.created)
}

// createGroup makes a group, which permits its ports to send everything.
func (n *Neutron) createGroup(name string) *secgroup.Group {
	g := &secgroup.Group{ID: n.id("group"), Name: name}
	for _, v6 := range []bool{false, true} {
		g.Rules = append(g.Rules, secgroup.InstalledRule{ID: n.id("rule"), Rule: secgroup.Rule{Direction: api.Egress, IPv6: v6}})
	}
	n.groups[g.ID] = g
	return g
}

// SetPorts makes the ports of the addresses exist, with the default group. It removes others,
// unless keep is set, and reports whether there were any.
func (n *Neutron) SetPorts(addrs map[netip.Addr]bool, keep bool) (removed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	has := map[netip.Addr]bool{}
	for id, p := range n.ports {
		if a := p.IPs[0]; addrs[a] || keep {
			has[a] = true
		} else {
			delete(n.ports, id)
			removed = true
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(addrs), netip.Addr.Compare) {
		if !has[a] {
			p := &secgroup.Port{ID: n.id("port"), Network: "net", IPs: []netip.Addr{a}, Groups: []string{Default}, Revision: 1}
			n.ports[p.ID] = p
		}
	}
	return removed
}

// FailNext makes the n-th next call fail; 0 cancels that.
func (n *Neutron) FailNext(nth int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failAt = nth
}

// Calls returns the changes so far, and the number of reads.
func (n *Neutron) Calls() (changes []secgroup.Op, reads int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ops), n.reads
}

// Edit calls f with everything, as another client that changes it.
func (n *Neutron) Edit(f func(groups map[string]*secgroup.Group, addrs map[string]*secgroup.AddressGroup, ports map[string]*secgroup.Port)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.groups, n.addrs, n.ports)
}

func (n *Neutron) fails() bool {
	if n.failAt == 0 {
		return false
	}
	n.failAt--
	return n.failAt == 0
}

// Inventory implements secgroup.API.
func (n *Neutron) Inventory(ctx context.Context, prefix string) (*secgroup.Inventory, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n.fails() {
		return nil, ErrInjected
	}
	inv := &secgroup.Inventory{Ports: n.copyPorts()}
	for _, id := range slices.Sorted(maps.Keys(n.groups)) {
		if g := *n.groups[id]; strings.HasPrefix(g.Name, prefix) {
			g.Rules = slices.Clone(g.Rules)
			inv.Groups = append(inv.Groups, g)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.addrs)) {
		if a := *n.addrs[id]; strings.HasPrefix(a.Name, prefix) {
			a.Addresses = slices.Clone(a.Addresses)
			inv.AddressGroups = append(inv.AddressGroups, a)
		}
	}
	return inv, nil
}

// Ports implements secgroup.API.
func (n *Neutron) Ports(ctx context.Context) ([]secgroup.Port, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n.fails() {
		return nil, ErrInjected
	}
	return n.copyPorts(), nil
}

func (n *Neutron) copyPorts() (out []secgroup.Port) {
	for _, id := range slices.Sorted(maps.Keys(n.ports)) {
		p := *n.ports[id]
		p.Groups = slices.Clone(p.Groups)
		out = append(out, p)
	}
	return out
}

// Apply implements secgroup.API.
func (n *Neutron) Apply(ctx context.Context, op secgroup.Op) (secgroup.Result, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return secgroup.Result{}, err
	}
	if n.Hook != nil {
		if err := n.Hook(op); err != nil {
			return secgroup.Result{}, err
		}
	}
	fails := n.fails()
	if fails && !n.Late {
		return secgroup.Result{}, ErrInjected
	}
	res, err := n.apply(op)
	if err != nil {
		return secgroup.Result{}, err
	}
	n.ops = append(n.ops, op)
	if fails {
		return secgroup.Result{}, ErrInjected
	}
	return res, nil
}

func (n *Neutron) apply(op secgroup.Op) (secgroup.Result, error) {
	switch op.Kind {
	case secgroup.CreateGroup:
		g := n.createGroup(op.Name)
		return secgroup.Result{ID: g.ID, Rules: slices.Clone(g.Rules)}, nil
	case secgroup.CreateRules:
		return n.createRules(op)
	case secgroup.DeleteRule:
		return secgroup.Result{}, n.deleteRule(op.ID)
	case secgroup.DeleteGroup:
		return secgroup.Result{}, n.deleteGroup(op.ID)
	case secgroup.SetGroups:
		return n.setGroups(op)
	case secgroup.CreateAddressGroup:
		a := &secgroup.AddressGroup{ID: n.id("addresses"), Name: op.Name, Addresses: slices.Clone(op.Addresses)}
		n.addrs[a.ID] = a
		return secgroup.Result{ID: a.ID}, nil
	case secgroup.AddAddresses, secgroup.RemoveAddresses, secgroup.DeleteAddressGroup:
	}
	return secgroup.Result{}, n.changeAddresses(op)
}

func (n *Neutron) createRules(op secgroup.Op) (res secgroup.Result, err error) {
	g := n.groups[op.ID]
	if g == nil {
		return res, secgroup.ErrGone
	}
	rules, has := slices.Clone(g.Rules), make(map[secgroup.Rule]bool, len(g.Rules))
	for _, r := range rules {
		has[r.Rule] = true
	}
	for _, r := range op.Rules {
		if err := n.valid(r); err != nil {
			return res, err
		}
		if has[r] {
			return res, fmt.Errorf("rule %s exists", r)
		}
		has[r] = true
		i := secgroup.InstalledRule{ID: n.id("rule"), Rule: r}
		rules, res.Rules = append(rules, i), append(res.Rules, i)
	}
	g.Rules = rules
	return res, nil
}

// valid refuses what Neutron refuses.
func (n *Neutron) valid(r secgroup.Rule) error {
	switch {
	case (r.First == 0) != (r.Last == 0) || r.First > r.Last || r.First > 0 && r.Protocol != api.TCP && r.Protocol != api.UDP && r.Protocol != api.SCTP:
		return fmt.Errorf("invalid ports: %s", r)
	case r.Remote.IsValid() && r.Remote.Addr().Is6() != r.IPv6:
		return fmt.Errorf("invalid family: %s", r)
	case r.Remote.IsValid() && r.Remote.Bits() == 0:
		return fmt.Errorf("everything is no remote: %s", r)
	case r.AddressGroup != "" && n.addrs[r.AddressGroup] == nil:
		return fmt.Errorf("no such address group: %s", r)
	case r.IPv6 && r.Protocol == api.ICMP || !r.IPv6 && r.Protocol == api.ICMPv6:
		return fmt.Errorf("protocol of the other family: %s", r)
	}
	return nil
}

func (n *Neutron) deleteRule(id string) error {
	for _, g := range n.groups {
		i := slices.IndexFunc(g.Rules, func(r secgroup.InstalledRule) bool { return r.ID == id })
		if i >= 0 {
			g.Rules = slices.Delete(slices.Clone(g.Rules), i, i+1)
			return nil
		}
	}
	return secgroup.ErrGone
}

func (n *Neutron) deleteGroup(id string) error {
	if n.groups[id] == nil {
		return secgroup.ErrGone
	}
	for _, p := range n.ports {
		if slices.Contains(p.Groups, id) {
			return secgroup.ErrInUse
		}
	}
	delete(n.groups, id)
	return nil
}

func (n *Neutron) setGroups(op secgroup.Op) (res secgroup.Result, err error) {
	p := n.ports[op.ID]
	switch {
	case p == nil:
		return res, secgroup.ErrGone
	case p.Revision != op.Revision:
		return res, fmt.Errorf("port %s has revision %d, not %d", p.ID, p.Revision, op.Revision)
	}
	for _, id := range op.Groups {
		if n.groups[id] == nil {
			return res, fmt.Errorf("no group %s", id)
		}
	}
	p.Groups = slices.Clone(op.Groups)
	p.Revision++
	return secgroup.Result{Revision: p.Revision}, nil
}

func (n *Neutron) changeAddresses(op secgroup.Op) error {
	a := n.addrs[op.ID]
	if a == nil {
		return secgroup.ErrGone
	}
	switch op.Kind {
	case secgroup.DeleteAddressGroup:
		for _, g := range n.groups {
			if slices.ContainsFunc(g.Rules, func(r secgroup.InstalledRule) bool { return r.AddressGroup == op.ID }) {
				return secgroup.ErrInUse
			}
		}
		delete(n.addrs, op.ID)
	case secgroup.AddAddresses:
		for _, p := range op.Addresses {
			if slices.Contains(a.Addresses, p) {
				return fmt.Errorf("address group %s has %s", a.ID, p)
			}
			a.Addresses = append(slices.Clone(a.Addresses), p)
		}
	case secgroup.RemoveAddresses:
		for _, p := range op.Addresses {
			if !slices.Contains(a.Addresses, p) {
				return fmt.Errorf("address group %s has no %s", a.ID, p)
			}
		}
		a.Addresses = slices.DeleteFunc(slices.Clone(a.Addresses), func(p netip.Prefix) bool { return slices.Contains(op.Addresses, p) })
	default:
		return fmt.Errorf("unknown call %d", op.Kind)
	}
	return nil
}

// Passes reports whether the first packet of a flow passes the port of its source and that of its
// destination. What has no port is not asked.
func (n *Neutron) Passes(f api.Flow) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f.Src == f.Dst {
		return true
	}
	return n.port(f.Src, f.Dst, f, api.Egress) && n.port(f.Dst, f.Src, f, api.Ingress)
}

// PassesEnd reports whether the first packet of a flow passes the port at one of its ends: that of its
// source for Egress, that of its destination for Ingress. What has no port is not asked.
func (n *Neutron) PassesEnd(f api.Flow, d api.Direction) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d == api.Egress {
		return n.port(f.Src, f.Dst, f, d)
	}
	return n.port(f.Dst, f.Src, f, d)
}

// port asks the ports with an address whether they let a packet from or to a peer pass.
func (n *Neutron) port(own, peer netip.Addr, f api.Flow, d api.Direction) bool {
	for _, p := range n.ports {
		if !slices.Contains(p.IPs, own) {
			continue
		}
		permitted := false
		for _, id := range p.Groups {
			for _, r := range n.groups[id].Rules {
				permitted = permitted || r.Direction == d && n.matches(r.Rule, peer, f)
			}
		}
		if !permitted {
			return false
		}
	}
	return true
}

func (n *Neutron) matches(r secgroup.Rule, peer netip.Addr, f api.Flow) bool {
	if peer.Is6() != r.IPv6 {
		return false
	}
	if r.Protocol != 0 && r.Protocol != f.Protocol {
		return false
	}
	if r.First != 0 && (f.DstPort < r.First || f.DstPort > r.Last) {
		return false
	}
	if r.AddressGroup != "" {
		for _, p := range n.addrs[r.AddressGroup].Addresses {
			if p.Contains(peer) {
				return true
			}
		}
		return false
	}
	return !r.Remote.IsValid() || r.Remote.Contains(peer)
}

// Installed prints what each address is permitted, except for ports with the default group alone.
func (n *Neutron) Installed() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, p := range n.ports {
		if slices.Equal(p.Groups, []string{Default}) {
			continue
		}
		lines := []string{}
		for _, id := range p.Groups {
			for _, r := range n.groups[id].Rules {
				if a := n.addrs[r.AddressGroup]; a != nil {
					sorted := slices.SortedFunc(slices.Values(a.Addresses), func(x, y netip.Prefix) int {
						return cmp.Or(x.Addr().Compare(y.Addr()), cmp.Compare(x.Bits(), y.Bits()))
					})
					r.AddressGroup = fmt.Sprint(a.Name, sorted)
				}
				lines = append(lines, "  "+r.String())
			}
		}
		slices.Sort(lines)
		out = append(out, fmt.Sprintf("%v\n%s\n", p.IPs, strings.Join(lines, "\n")))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// Dangling describes unused groups and address groups with a prefix.
func (n *Neutron) Dangling(prefix string) (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	used := map[string]bool{}
	for _, p := range n.ports {
		for _, id := range p.Groups {
			used[id] = true
			if n.groups[id] == nil {
				out = append(out, fmt.Sprintf("port %s has group %s, which is gone", p.ID, id))
			}
		}
	}
	for id, g := range n.groups {
		if strings.HasPrefix(g.Name, prefix) && !used[id] {
			out = append(out, fmt.Sprintf("no port has group %s", id))
		}
		for _, r := range g.Rules {
			used[r.AddressGroup] = true
		}
	}
	for id, a := range n.addrs {
		if strings.HasPrefix(a.Name, prefix) && !used[id] {
			out = append(out, fmt.Sprintf("no rule names address group %s", id))
		}
	}
	return out
}
