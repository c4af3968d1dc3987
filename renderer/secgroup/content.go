package secgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/internal/capacity"
	"github.com/sluice-net/sluice/renderer/internal/ports"
	"github.com/sluice-net/sluice/renderer/secgroup/internal/permits"
)

// content is what a group must hold. Rules name address groups by their names.
type content struct {
	key     string                // digest of the rules
	lists   [2]*renderer.RuleList // of which it was made, by direction
	rules   map[Rule][]api.Origin
	deny    [2][]api.Origin             // origins of everything else, by direction
	addrs   map[string][]permits.Remote // address groups that the rules name
	sets    []api.SetID
	reports []renderer.Unenforced
}

// pair identifies the lists of pods, why they are closed, and the addresses of their node.
type pair struct {
	lists   [2]*renderer.RuleList // by direction of the pod
	refused [2]capacity.Refusal
	node    string
}

// builder makes the contents of groups.
type builder struct {
	members       permits.Members
	infra         []netip.Prefix
	addressGroups bool
	ownNode       bool // the members of api.NodeSet differ between pods
	maxRules      int
	prefix        string // of names
}

// Reasons of reports.
const (
	reasonUnnamed = "too many rules of security groups to permit every protocol other than TCP, UDP, SCTP and ICMP"
)

// reasonOf says why a list of a namespace is closed, and what helps.
func reasonOf(namespace string, r capacity.Refusal) string {
	if r.Limit == capacity.OneList {
		return fmt.Sprintf("too many rules of security groups: a list may become %d, so name fewer peers or ports, or raise --neutron-max-rules", r.Most)
	}
	return fmt.Sprintf("too many rules of security groups: the lists of namespace %s may become %d, and this is one of those that become most, so name fewer peers or ports", namespace, r.Most)
}

// maxInline is the largest number of prefixes that a remote without address sets has in rules. More
// become an address group, where these are used.
const maxInline = 4

// permitsOf returns what a list for a direction of the pod permits.
func permitsOf(l *renderer.RuleList, d api.Direction) *permits.List {
	return permits.Of(l, func(r api.ContivRule) api.Net {
		if d == api.Ingress {
			return r.Src
		}
		return r.Dst
	})
}

// build returns the content for two lists, which may be nil, and what they permit. namespace is that
// of one of their pods.
func (b *builder) build(p pair, permit [2]*permits.List, namespace string) *content {
	c := &content{lists: p.lists, rules: map[Rule][]api.Origin{}, addrs: map[string][]permits.Remote{}}
	seen := map[api.SetID]bool{}
	for d, l := range permit {
		b.direction(c, api.Direction(d), l, p.refused[d], namespace)
		for _, id := range l.Sets() {
			if !seen[id] {
				seen[id] = true
				c.sets = append(c.sets, id)
			}
		}
	}
	c.reports = renderer.SortUnenforced(c.reports)
	c.key = digest(slices.SortedFunc(maps.Keys(c.rules), Rule.Compare))
	return c
}

// direction adds the rules of one direction, or only those for exempt traffic if its list is refused.
func (b *builder) direction(c *content, d api.Direction, l *permits.List, refused capacity.Refusal, namespace string) {
	c.deny[d] = l.Deny
	c.reports = append(c.reports, l.Lost...)
	if refused.Limit != capacity.None {
		for _, p := range l.Permits {
			c.report(p.Origins, reasonOf(namespace, refused))
		}
		x := expansion{builder: b, direction: d, rules: c.rules, left: len(b.infra)}
		x.exempt()
		return
	}
	x, without, _ := b.expand(d, l)
	maps.Copy(c.rules, x.rules)
	maps.Copy(c.addrs, x.addrs)
	c.report(without, reasonUnnamed)
}

// expand makes the rules of a list, and reports whether they fit. Where they are too many, it leaves
// out protocols that policies cannot name: without has the origins of those.
func (b *builder) expand(d api.Direction, l *permits.List) (x expansion, without []api.Origin, fits bool) {
	for _, unnamed := range []bool{true, false} {
		x = expansion{builder: b, direction: d, rules: map[Rule][]api.Origin{}, addrs: map[string][]permits.Remote{}, left: b.maxRules / 2}
		without, fits = nil, x.exempt()
		for _, p := range l.Permits {
			if p.Unnamed && !unnamed {
				without = append(without, p.Origins...)
				continue
			}
			fits = fits && x.permit(p)
		}
		if fits {
			break
		}
	}
	return x, without, fits
}

func (c *content) report(origins []api.Origin, reason string) {
	for _, o := range origins {
		c.reports = append(c.reports, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: reason, Effect: renderer.EffectClosed})
	}
}

// expansion makes the rules of one direction.
type expansion struct {
	*builder
	direction api.Direction
	rules     map[Rule][]api.Origin
	addrs     map[string][]permits.Remote
	left      int // rules that still fit
}

// exempt permits the exempt traffic, and reports whether the rules fit.
func (x *expansion) exempt() bool {
	for _, p := range x.infra {
		if !x.addRule(Rule{IPv6: !p.Addr().Is4(), Remote: p}, nil) {
			return false
		}
	}
	return true
}

// permit adds the rules of a permit, and reports whether they fit.
func (x *expansion) permit(p permits.Permit) bool {
	r := Rule{Protocol: p.Protocol}
	if whole := (ports.Range{Last: 65535}); p.Ports != whole {
		if r.First, r.Last = max(1, p.Ports.First), p.Ports.Last; r.Last == 0 {
			return true // Neutron has no port 0
		}
	}
	inline := p.Remotes
	if x.addressGroups {
		inline = nil
		for _, remote := range p.Remotes {
			if x.isInline(remote) {
				inline = append(inline, remote)
			} else if !x.group(r, remote, p.Origins) {
				return false
			}
		}
	}
	for _, prefix := range permits.Expand(inline, x.members) {
		if r.IPv6 = !prefix.Addr().Is4(); !possible(r.Protocol, r.IPv6) {
			continue
		}
		if r.Remote = prefix; prefix.Bits() == 0 {
			r.Remote = netip.Prefix{}
		}
		if !x.addRule(r, p.Origins) {
			return false
		}
	}
	return true
}

// isInline reports whether the prefixes of a remote stay in rules. Those of address sets do not,
// since their members change, except where they differ between pods.
func (x *expansion) isInline(r permits.Remote) bool {
	sets, own := false, false
	r.Sets(func(id api.SetID) { sets, own = true, own || x.ownNode && id == api.NodeSet })
	return own || !sets && len(permits.Expand([]permits.Remote{r}, x.members)) <= maxInline
}

// group adds a rule for each family in which the remote has addresses, which are an address group
// if there is a rule.
func (x *expansion) group(r Rule, remote permits.Remote, origins []api.Origin) bool {
	r.AddressGroup = x.prefix + hash(remote.String())
	families := [2]bool{}
	for _, p := range permits.Expand([]permits.Remote{remote}, x.members) {
		families[family(p)] = true
	}
	for f, has := range families {
		if r.IPv6 = f == 1; !has || !possible(r.Protocol, r.IPv6) {
			continue
		}
		if !x.addRule(r, origins) {
			return false
		}
		x.addrs[r.AddressGroup] = []permits.Remote{remote}
	}
	return true
}

func family(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

// addRule adds a possible rule, and reports whether it fits.
func (x *expansion) addRule(r Rule, origins []api.Origin) bool {
	r.Direction = x.direction
	old, ok := x.rules[r]
	if !ok {
		x.left--
	}
	switch {
	case len(old) == 0:
		old = origins // of the permit, which are sorted
	case len(origins) > 0:
		old = slices.Concat(old, origins)
		slices.SortFunc(old, api.Origin.Compare)
		old = slices.Compact(old)
	}
	x.rules[r] = old
	return x.left >= 0
}

// possible reports whether Neutron has rules for a protocol in a family. Others, which no packet
// of the family can match, are left out. It takes ICMP in IPv6 for
// ICMPv6, and refuses the protocols of IPv6 in IPv4.
func possible(p api.Protocol, v6 bool) bool {
	if v6 {
		return p != api.ICMP
	}
	return !slices.Contains([]api.Protocol{41, 43, 44, api.ICMPv6, 59, 60}, p)
}

// digest returns a digest of sorted rules.
func digest(sorted []Rule) string {
	h := sha256.New()
	for _, r := range sorted {
		_, _ = fmt.Fprintf(h, "%+v\n", r) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
