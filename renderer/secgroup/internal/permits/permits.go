package permits

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/internal/ports"
)

// Remote is the addresses of a net that are in none of the nets of Except.
type Remote struct {
	Net    api.Net
	Except []api.Net // sorted, without duplicates
}

// String returns for example "any - set:0000000000000005 - 10.0.0.0/8". Equal remotes have equal
// texts.
func (r Remote) String() string {
	var b strings.Builder
	b.WriteString(r.Net.String())
	for _, n := range r.Except {
		b.WriteString(" - " + n.String())
	}
	return b.String()
}

// IsAny reports whether the remote is every address of both families.
func (r Remote) IsAny() bool { return r.Net.IsAny() && len(r.Except) == 0 }

// Sets calls f for each address set that the remote names.
func (r Remote) Sets(f func(api.SetID)) {
	for _, n := range append([]api.Net{r.Net}, r.Except...) {
		if n.Set != 0 {
			f(n.Set)
		}
	}
}

// Permit is traffic that a list permits: one protocol, one range of destination ports, and the
// remotes of which each may exchange it.
type Permit struct {
	Protocol api.Protocol
	Ports    ports.Range
	Remotes  []Remote
	Origins  []api.Origin // of the rules that permit it, sorted
	// Unnamed is set for a protocol that no policy can name. It is permitted because a rule for all
	// protocols permits it, while an earlier rule denies some other protocol.
	Unnamed bool
}

// List is what one list permits.
type List struct {
	Permits []Permit // sorted by protocol and ports
	Deny    []api.Origin
	// Lost are the rules that cannot be expressed because they name source ports.
	Lost []renderer.Unenforced
}

// Sets returns the address sets that the permits name, sorted.
func (l *List) Sets() []api.SetID {
	seen := map[api.SetID]struct{}{}
	for _, p := range l.Permits {
		for _, r := range p.Remotes {
			r.Sets(func(id api.SetID) { seen[id] = struct{}{} })
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// reasonSource is why a rule is not enforced exactly.
const reasonSource = "security groups do not match source ports"

// Of returns what a list permits. remote returns the side of a rule that is not the pod's. A nil
// list permits everything.
func Of(l *renderer.RuleList, remote func(api.ContivRule) api.Net) *List {
	if l == nil {
		return &List{Permits: []Permit{{Ports: allPorts, Remotes: []Remote{{}}}}}
	}
	u := union{list: l, remote: remote, byRemote: map[string]*traffic{}}
	for i, r := range l.Rules() {
		u.rule(i, r)
	}
	return &List{Permits: u.permits(), Deny: sorted(u.deny), Lost: renderer.SortUnenforced(u.lost)}
}

var allPorts = ports.All[0]

// union collects what the permits of one list match.
type union struct {
	list     *renderer.RuleList
	remote   func(api.ContivRule) api.Net
	denies   []api.ContivRule // so far
	byRemote map[string]*traffic
	deny     []api.Origin
	lost     []renderer.Unenforced
}

// traffic is what one remote may exchange.
type traffic struct {
	remote  Remote
	parts   map[api.Protocol][]part
	ports   map[api.Protocol]ports.Set // the union of parts
	unnamed map[api.Protocol]bool
}

// part is the ports that a rule permits, and where the rule comes from.
type part struct {
	ports.Range
	origins []api.Origin
}

func (u *union) rule(i int, r api.ContivRule) {
	if !r.SrcPort.IsAny() {
		u.lose(i, r.Action)
		if r.Action == api.Permit {
			return
		}
		r.SrcPort = api.AnyPort // denies more
	}
	if r.Action == api.Deny {
		u.denies = append(u.denies, r)
		u.deny = append(u.deny, u.list.Origins(i)...)
		return
	}
	u.permit(r, u.list.Origins(i))
}

func (u *union) lose(i int, a api.Action) {
	effect := renderer.EffectClosed
	if a == api.Deny {
		effect = renderer.EffectWider
	}
	for _, o := range u.list.Origins(i) {
		u.lost = append(u.lost, renderer.Unenforced{Origin: o, Class: api.ClassDataplane, Reason: reasonSource, Effect: effect})
	}
}

// permit adds what a rule permits and no earlier rule denies.
func (u *union) permit(r api.ContivRule, origins []api.Origin) {
	if r.Protocol != api.AnyProtocol {
		u.protocol(r, r.Protocol, origins, false)
		return
	}
	named := map[api.Protocol]bool{}
	for _, d := range u.denies {
		named[d.Protocol] = true
	}
	delete(named, api.AnyProtocol)
	if len(named) == 0 {
		u.protocol(r, api.AnyProtocol, origins, false)
		return
	}
	for p := api.Protocol(255); p > 0; p-- {
		u.protocol(r, p, origins, !named[p] && !isNamed(p))
	}
}

// isNamed reports whether the protocol is one that a policy can name, or ICMP.
func isNamed(p api.Protocol) bool { return p.HasPorts() || p == api.ICMP || p == api.ICMPv6 }

// protocol adds the part of a rule that is of one protocol. The ports at which the earlier denies
// change divide it into parts with the same denies.
func (u *union) protocol(r api.ContivRule, p api.Protocol, origins []api.Origin, unnamed bool) {
	whole := ports.Of(r.DstPort)
	cuts := []int{int(whole.First), int(whole.Last) + 1}
	var denies []api.ContivRule
	for _, d := range u.denies {
		if d.Protocol != api.AnyProtocol && d.Protocol != p {
			continue
		}
		if m, ok := ports.Of(d.DstPort).Intersect(whole); ok {
			denies = append(denies, d)
			cuts = append(cuts, int(m.First), int(m.Last)+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := range cuts[1:] {
		part := ports.Range{First: uint16(cuts[i]), Last: uint16(cuts[i+1] - 1)}
		if x, ok := u.without(u.remote(r), denies, part); ok {
			u.add(x, p, part, origins, unnamed)
		}
	}
}

// without subtracts the nets of the denies that match a range of ports. All of the range is matched
// by the same denies.
func (u *union) without(n api.Net, denies []api.ContivRule, part ports.Range) (Remote, bool) {
	out := Remote{Net: n}
	for _, d := range denies {
		if !d.DstPort.Contains(part.First) {
			continue
		}
		e := u.remote(d)
		if e.IsAny() || e == n || isPrefix(e) && isPrefix(n) && covers(e, n) {
			return out, false
		}
		if !isPrefix(e) || !isPrefix(n) || e.Prefix.Overlaps(n.Prefix) {
			out.Except = append(out.Except, e)
		}
	}
	slices.SortFunc(out.Except, api.Net.Compare)
	out.Except = slices.Compact(out.Except)
	return out, true
}

func isPrefix(n api.Net) bool { return n.Prefix.IsValid() }

func covers(a, b api.Net) bool {
	return a.Prefix.Bits() <= b.Prefix.Bits() && a.Prefix.Contains(b.Prefix.Addr())
}

func (u *union) add(x Remote, p api.Protocol, r ports.Range, origins []api.Origin, unnamed bool) {
	key := x.String()
	t := u.byRemote[key]
	if t == nil {
		t = &traffic{x, map[api.Protocol][]part{}, map[api.Protocol]ports.Set{}, map[api.Protocol]bool{}}
		u.byRemote[key] = t
	}
	t.parts[p] = append(t.parts[p], part{r, origins})
	if unnamed {
		t.unnamed[p] = true
	}
}

// permits returns the collected traffic by protocol and ports. What any remote may exchange is not
// repeated for others.
func (u *union) permits() []Permit {
	for _, t := range u.byRemote {
		t.unite()
	}
	anyone := u.byRemote[Remote{}.String()]
	type key struct {
		protocol api.Protocol
		ports    ports.Range
	}
	found := map[key]*Permit{}
	for _, name := range slices.Sorted(maps.Keys(u.byRemote)) {
		t := u.byRemote[name]
		for _, p := range slices.Sorted(maps.Keys(t.ports)) {
			parts := t.parts[p]
			for _, r := range t.rest(p, anyone) {
				for len(parts) > 0 && parts[0].Last < r.First {
					parts = parts[1:]
				}
				k := key{p, r}
				if found[k] == nil {
					found[k] = &Permit{Protocol: p, Ports: r, Unnamed: true}
				}
				f := found[k]
				f.Remotes = append(f.Remotes, t.remote)
				for _, x := range parts {
					if x.First > r.Last {
						break
					}
					if x.Last >= r.First {
						f.Origins = append(f.Origins, x.origins...)
					}
				}
				f.Unnamed = f.Unnamed && t.unnamed[p]
			}
		}
	}
	out := make([]Permit, 0, len(found))
	for _, f := range found {
		f.Origins = sorted(f.Origins)
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Permit) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Ports.First, b.Ports.First), cmp.Compare(a.Ports.Last, b.Ports.Last))
	})
	return out
}

// unite sorts the parts of each protocol by their first port, and unites them.
func (t *traffic) unite() {
	for p, parts := range t.parts {
		slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.First, b.First) })
		all := make([]ports.Range, len(parts))
		for i, x := range parts {
			all[i] = x.Range
		}
		t.ports[p] = ports.Union(all)
	}
}

// rest returns the ports of a protocol that neither all protocols of the same remote nor the
// traffic of anyone cover.
func (t *traffic) rest(p api.Protocol, anyone *traffic) ports.Set {
	out := t.ports[p]
	if p != api.AnyProtocol {
		out = out.Minus(t.ports[api.AnyProtocol])
	}
	if anyone != nil && anyone != t {
		out = out.Minus(anyone.ports[p]).Minus(anyone.ports[api.AnyProtocol])
	}
	return out
}

func sorted(origins []api.Origin) []api.Origin {
	slices.SortFunc(origins, api.Origin.Compare)
	return slices.Compact(origins)
}
