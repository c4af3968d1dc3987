package device

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Device is the dataplane. It replaces the table of a pod at once. A call that fails changes
// nothing.
type Device interface {
	Tables() (map[api.PodID]Table, error)
	Put(pod api.PodID, t Table) error
	Delete(pod api.PodID) error
}

// Table is what the device enforces for a pod. The first rule that matches a packet decides; no
// rule denies. FromPod is for what the pod sends, ToPod for what it receives; nil permits
// everything.
type Table struct {
	IPs            []netip.Addr
	FromPod, ToPod []Rule
}

// Rule matches packets by their other end, protocol and ports.
type Rule struct {
	Permit           bool
	Peers            []netip.Prefix // sorted; empty is everybody
	Protocol         api.Protocol
	SrcPort, DstPort api.PortRange
}

func (t Table) equal(u Table) bool {
	same := func(a, b []Rule) bool {
		return (a == nil) == (b == nil) && slices.EqualFunc(a, b, func(r, s Rule) bool {
			return r.Permit == s.Permit && r.Protocol == s.Protocol && r.SrcPort == s.SrcPort && r.DstPort == s.DstPort && slices.Equal(r.Peers, s.Peers)
		})
	}
	return slices.Equal(t.IPs, u.IPs) && same(t.FromPod, u.FromPod) && same(t.ToPod, u.ToPod)
}

// table returns what the device has to enforce for a pod. In a PodConfig directions are the
// vswitch's.
func (r *Renderer) table(cfg renderer.PodConfig) Table {
	return Table{
		IPs:     cfg.IPs,
		FromPod: r.rules(cfg.Ingress, func(c api.ContivRule) api.Net { return c.Dst }),
		ToPod:   r.rules(cfg.Egress, func(c api.ContivRule) api.Net { return c.Src }),
	}
}

// rules writes a list with the members of the sets that it names.
func (r *Renderer) rules(l *renderer.RuleList, peer func(api.ContivRule) api.Net) []Rule {
	if l == nil {
		return nil
	}
	out := []Rule{}
	for _, c := range l.Rules() {
		rule := Rule{Permit: c.Action == api.Permit, Protocol: c.Protocol, SrcPort: c.SrcPort, DstPort: c.DstPort}
		switch net := peer(c); {
		case net.Set != 0:
			for p := range r.sets[net.Set] {
				rule.Peers = append(rule.Peers, p)
			}
			if len(rule.Peers) == 0 {
				continue // an empty set matches no peer, and a rule without peers matches every peer
			}
			slices.SortFunc(rule.Peers, netip.Prefix.Compare)
		case !net.IsAny():
			rule.Peers = []netip.Prefix{net.Prefix}
		}
		out = append(out, rule)
	}
	return out
}
