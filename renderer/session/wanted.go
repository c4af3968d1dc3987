package session

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// holders are the pods of sections.
type holders map[section]api.PodID

// mayBe reports whether the rules of a section may be those of a pod: addresses and namespaces move
// between pods. The pods of rules of an earlier process are unknown.
func (h holders) mayBe(s section, pod api.PodID) bool {
	holder, known := h[s]
	return !known || holder == pod
}

// desired collects the desired sections.
type desired struct {
	state    *cache.Cache
	layout   cache.Layout
	nets     *cache.Nets
	free     []netip.Prefix // peers exempt from policy
	pods     *pods
	mirror   *mirror
	compiler *compiler
	used     map[wantedKey]bool

	sections map[section]*wanted
	holders  holders
	kept     map[section]bool // sections that stay as they are
	oversize []renderer.Unenforced
	refused  []error
}

// collect adds the sections of all pods with a namespace.
func (d *desired) collect() {
	claimed := map[uint32]api.PodID{}
	for _, pod := range d.pods.onStack() {
		own := d.pods.own[pod]
		for _, namespace := range d.pods.namespaces[pod] {
			if d.layout.Global != nil {
				d.global(pod, namespace, own)
			}
			if first, taken := claimed[namespace]; taken {
				d.share(namespace, first, pod)
				continue
			}
			claimed[namespace] = pod
			if table := d.layout.Pods[pod]; table != nil {
				d.local(pod, namespace, table, own)
			}
		}
	}
	d.compiler.keep(d.used)
}

// add adds a section of a pod.
func (d *desired) add(s section, pod api.PodID, w *wanted) { d.sections[s], d.holders[s] = w, pod }

// share denies all connections from a namespace that two pods claim. Who may reach the pods depends
// only on their addresses.
func (d *desired) share(namespace uint32, first, second api.PodID) {
	d.refused = append(d.refused, fmt.Errorf("%w: %d, by %s and %s", ErrSharedNamespace, namespace, first, second))
	for _, transport := range transports {
		for family := range tops {
			d.add(section{namespace, true, transport, everything(family), family}, second,
				&wanted{rules: rules{tops[family]: api.Deny}, origin: second.String()})
		}
	}
}

// loopback are the prefixes with which applications reach their own pod, besides its addresses.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// local adds the sections for what a pod may connect to. It may always connect to itself: such a
// connection does not cross the vswitch.
func (d *desired) local(pod api.PodID, namespace uint32, table *cache.Table, own []netip.Addr) {
	free := slices.Concat(d.free, loopback, hosts(own))
	var rules []api.ContivRule
	for _, r := range table.Rules {
		if r.Src != (api.Net{}) { // VPP ignores the source of a connection
			if r.Action == api.Permit {
				continue
			}
			r.Src = api.Net{}
		}
		rules = append(rules, r)
	}
	for _, transport := range transports {
		for family := range tops {
			key := wantedKey{table.Digest, false, transport, family, fmt.Sprint(ofFamily(free, family))}
			if w := d.compile(key, rules, destination, free, tagOrigin(pod, table, len(table.Rules)-1), table.Origins); w != nil {
				d.add(section{namespace, true, transport, everything(family), family}, pod, w)
			}
		}
	}
}

// global adds the sections for who may reach the addresses of a pod.
func (d *desired) global(pod api.PodID, namespace uint32, own []netip.Addr) {
	for _, addr := range own {
		table, from, end, ok := d.partOf(addr)
		if !ok {
			continue
		}
		free := slices.Concat(d.free, hosts(own))
		family := familyOf(addr)
		digest := renderer.DigestRules(table.Rules[from:end])
		for _, transport := range transports {
			key := wantedKey{digest, true, transport, family, fmt.Sprint(ofFamily(free, family))}
			if w := d.compile(key, table.Rules[from:end], source, free, tagOrigin(pod, table, end-1), table.Origins[from:end]); w != nil {
				d.add(section{d.mirror.tableOf(namespace, family), false, transport, netip.PrefixFrom(addr, addr.BitLen()), family}, pod, w)
			}
		}
	}
}

// partOf returns the part of the global table that decides about an address.
func (d *desired) partOf(addr netip.Addr) (t *cache.Table, from, end int, ok bool) {
	t = d.layout.Global
	for i, from := range t.Parts[:len(t.Parts)-1] {
		if d.state.InSet(t.Rules[from].Dst.Set, addr) {
			return t, from, t.Parts[i+1], true
		}
	}
	return t, 0, 0, false
}

// compile returns the wanted rules for a key.
func (d *desired) compile(key wantedKey, table []api.ContivRule, peer side, free []netip.Prefix, origin string, origins [][]api.Origin) *wanted {
	d.used[key] = true
	return d.compiler.wanted(key, table, peer, d.nets, free, origin, origins)
}

// tagOrigin returns the text about a table for tags: its first pod and, if there is room, the
// policy of its last rule.
func tagOrigin(pod api.PodID, table *cache.Table, rule int) string {
	out := pod.String()
	if rule >= 0 && rule < len(table.Origins) && len(table.Origins[rule]) > 0 {
		out += "@" + table.Origins[rule][0].Policy.Name
	}
	return out
}

func hosts(addrs []netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// checkSizes refuses sections with too many rules. Such a section keeps its rules if they belong to
// the current pod.
func (d *desired) checkSizes(most int, now holders) {
	reported := map[string]bool{}
	for _, s := range slices.SortedFunc(maps.Keys(d.sections), section.compare) {
		w := d.sections[s]
		if !w.tooMany {
			continue
		}
		if !reported[w.origin] {
			reported[w.origin] = true
			d.refused = append(d.refused, fmt.Errorf("%w: %s needs more than %d rules: name fewer ports in its policies", ErrTooLarge, s.describe(d.holders[s]), most))
			d.oversize = append(d.oversize, unenforced(w.origins)...)
		}
		if p := d.mirror.sections[s]; p != nil && len(p.rules) > 0 && now.mayBe(s, d.holders[s]) {
			d.kept[s] = true
			delete(d.sections, s)
			continue
		}
		d.sections[s] = &wanted{rules: rules{tops[s.family]: api.Deny}, origin: w.origin}
	}
}

// checkForeign removes wanted rules whose places have foreign rules.
func (d *desired) checkForeign() {
	for s, places := range d.mirror.foreign {
		w := d.sections[s]
		if w == nil {
			continue
		}
		rest := maps.Clone(w.rules)
		for at := range places {
			if _, ok := rest[at]; ok {
				delete(rest, at)
				d.refused = append(d.refused, fmt.Errorf("%w: %s port %d of %s of pod %s", ErrForeignRule, at.peer, at.port, s.transport, w.origin))
			}
		}
		if len(rest) < len(w.rules) {
			d.sections[s] = &wanted{rules: rest, origin: w.origin}
		}
	}
	slices.SortFunc(d.refused, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
}

// unenforced returns the reports for the rules of a refused table.
func unenforced(origins [][]api.Origin) (out []renderer.Unenforced) {
	for _, of := range origins {
		for _, o := range of {
			out = append(out, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: reasonSize, Effect: renderer.EffectPrevious, Pods: 1})
		}
	}
	return out
}
