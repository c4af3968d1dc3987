package session

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// wanted are the rules that a section is to have. Sections of pods that may do the same share
// them.
type wanted struct {
	rules   rules
	origin  string         // whose they are, for tags
	origins [][]api.Origin // of the rules of the table
}

// wantedKey is what wanted rules depend on, beside the members of sets.
type wantedKey struct {
	table     renderer.Digest // of its rules, or of those of a part of the global table
	global    bool
	transport api.Protocol
	family    int
	free      string // who passes whatever policy says
}

// desired collects the sections that there are to be.
type desired struct {
	r        *Renderer
	layout   cache.Layout
	nets     *cache.Nets
	sections map[section]*wanted
	holders  map[section]api.PodID // whose they are
	kept     map[section]bool      // stay as they are
	used     map[wantedKey]bool
	oversize []renderer.Unenforced
	refused  []error
}

// want returns the sections of all pods that have a namespace.
func (r *Renderer) want() *desired {
	d := &desired{r: r, layout: r.cache.Desired(), nets: cache.NewNets(r.cache.Members),
		sections: map[section]*wanted{}, holders: map[section]api.PodID{}, kept: map[section]bool{}, used: map[wantedKey]bool{}}
	claimed := map[uint32]api.PodID{}
	for _, pod := range slices.SortedFunc(maps.Keys(r.namespaces), api.PodID.Compare) {
		for _, namespace := range r.namespaces[pod] {
			if d.layout.Global != nil {
				d.global(pod, namespace, r.own[pod])
			}
			if first, taken := claimed[namespace]; taken {
				d.share(namespace, first, pod)
				continue
			}
			claimed[namespace] = pod
			if table := d.layout.Pods[pod]; table != nil {
				d.local(pod, namespace, table, r.own[pod])
			}
		}
	}
	for key := range r.compiled {
		if !d.used[key] {
			delete(r.compiled, key)
		}
	}
	return d
}

// add adds a section of a pod.
func (d *desired) add(s section, pod api.PodID, w *wanted) { d.sections[s], d.holders[s] = w, pod }

// share closes a namespace that two pods are said to have to what its applications open. Who may reach
// the pods is a matter of their addresses.
func (d *desired) share(namespace uint32, first, second api.PodID) {
	d.refused = append(d.refused, fmt.Errorf("%w: %d, by %s and %s", ErrSharedNamespace, namespace, first, second))
	for _, transport := range transports {
		for family := range tops {
			d.add(section{namespace, true, transport, everything(family), family}, second,
				&wanted{rules: rules{tops[family]: api.Deny}, origin: second.String()})
		}
	}
}

// loopback is what applications of a pod reach themselves by, beside the addresses of the pod.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// local adds the sections of what a pod may connect to. With itself it may always talk: such a
// connection does not cross the vswitch.
func (d *desired) local(pod api.PodID, namespace uint32, table *cache.Table, own []netip.Addr) {
	free := slices.Concat(d.r.options.Infra.Addresses, loopback, hosts(own))
	var rules []api.ContivRule
	for _, r := range table.Rules {
		if r.Src != (api.Net{}) { // VPP does not look where a connection comes from
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

// global adds the sections of who may reach the addresses of a pod.
func (d *desired) global(pod api.PodID, namespace uint32, own []netip.Addr) {
	for _, addr := range own {
		table, from, end, ok := d.partOf(addr)
		if !ok {
			continue
		}
		free := slices.Concat(d.r.options.Infra.Addresses, hosts(own))
		family := familyOf(addr)
		digest := renderer.DigestRules(table.Rules[from:end])
		for _, transport := range transports {
			key := wantedKey{digest, true, transport, family, fmt.Sprint(ofFamily(free, family))}
			if w := d.compile(key, table.Rules[from:end], source, free, tagOrigin(pod, table, end-1), table.Origins[from:end]); w != nil {
				d.add(section{d.r.tableOf(namespace, family), false, transport, netip.PrefixFrom(addr, addr.BitLen()), family}, pod, w)
			}
		}
	}
}

// partOf returns the part of the global table that decides about an address.
func (d *desired) partOf(addr netip.Addr) (t *cache.Table, from, end int, ok bool) {
	t = d.layout.Global
	for i, from := range t.Parts[:len(t.Parts)-1] {
		if d.r.cache.InSet(t.Rules[from].Dst.Set, addr) {
			return t, from, t.Parts[i+1], true
		}
	}
	return t, 0, 0, false
}

// compile returns the wanted rules for a key, nil for a section that nothing is to restrict.
// The same are the same pointer as long as nothing changes.
func (d *desired) compile(key wantedKey, table []api.ContivRule, peer side, free []netip.Prefix, origin string, origins [][]api.Origin) *wanted {
	d.used[key] = true
	w, ok := d.r.compiled[key]
	if !ok {
		lines := d.r.can.lines(table, peer, key.transport, key.family, d.nets, free)
		w = &wanted{rules: compile(lines, key.family), origin: origin, origins: origins}
		if len(w.rules) == 0 {
			w = nil
		}
		d.r.compiled[key] = w
	}
	return w
}

// tagOrigin says in a tag whose a table is: the first pod's that has it and, if there is room,
// what policy its last rule is of.
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

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
