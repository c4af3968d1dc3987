package secgroup

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/internal/capacity"
	"github.com/sluice-net/sluice/renderer/secgroup/internal/permits"
)

// held is the known content of Neutron.
type held struct {
	groups map[string]*heldGroup    // by ID
	addrs  map[string]*AddressGroup // by ID
	ports  map[string]*Port         // by ID
	names  map[string]string        // IDs of address groups, by name
	at     map[netip.Addr][]*Port   // ports by fixed address
}

// heldGroup is a group of ours. Its rules name address groups by their IDs.
type heldGroup struct {
	id, name string
	rules    map[Rule][]string // IDs
}

func newHeld(inv *Inventory) *held {
	h := &held{groups: map[string]*heldGroup{}, addrs: map[string]*AddressGroup{}, names: map[string]string{}}
	for _, g := range inv.Groups {
		h.group(g.ID, g.Name, g.Rules)
	}
	for i := range inv.AddressGroups {
		a := inv.AddressGroups[i]
		if id, twice := h.names[a.Name]; !twice || a.ID < id {
			h.names[a.Name] = a.ID
		}
		h.addrs[a.ID] = &a
	}
	h.setPorts(inv.Ports)
	return h
}

func (h *held) group(id, name string, rules []InstalledRule) *heldGroup {
	g := &heldGroup{id, name, map[Rule][]string{}}
	for _, r := range rules {
		g.rules[r.Rule] = append(g.rules[r.Rule], r.ID)
	}
	h.groups[id] = g
	return g
}

func (h *held) setPorts(ports []Port) {
	h.ports, h.at = map[string]*Port{}, map[netip.Addr][]*Port{}
	for i := range ports {
		p := ports[i]
		h.ports[p.ID] = &p
		for _, a := range p.IPs {
			h.at[a.Unmap()] = append(h.at[a.Unmap()], &p)
		}
	}
}

// owned returns the IDs of groups of ours that a port has.
func (h *held) owned(p *Port) (out []string) {
	for _, id := range p.Groups {
		if h.groups[id] != nil {
			out = append(out, id)
		}
	}
	return out
}

// wanted is what Neutron must hold.
type wanted struct {
	groups   map[string]*content       // by key
	ports    map[string]string         // key of the content of a port, by its ID; "" means the default groups
	contents map[string]*content       // of the group of a port, by its ID
	addrs    map[string][]netip.Prefix // by name
	pods     map[api.PodID]*content    // with rules
	plugged  map[api.PodID]bool        // pods with rules that have a port
	covered  map[string]int            // addresses of a port that the pod has
	owners   map[string]api.PodID      // a pod of each port
	portless map[netip.Addr]api.PodID  // addresses of pods that no port has
	unclear  map[string]bool           // ports that are not changed, because a pod has several
	pending  []renderer.Pending
	shared   []error
}

// want derives the desired content of Neutron. It reads what is not known.
func (r *Renderer) want(ctx context.Context) (*wanted, error) {
	fresh := r.existing == nil
	if fresh {
		inv, err := r.options.API.Inventory(ctx, r.namePrefix())
		if err != nil {
			return nil, fmt.Errorf("read security groups: %w", err)
		}
		r.existing = newHeld(inv)
	}
	w := r.place()
	if !fresh && (len(w.pending) > 0 || !maps.Equal(w.portless, r.reads.portless)) {
		ports, err := r.options.API.Ports(ctx)
		if err != nil {
			return nil, fmt.Errorf("read ports: %w", err)
		}
		r.existing.setPorts(ports)
		w = r.place()
	}
	r.reads.portless = w.portless
	w.retire(r)
	for _, c := range w.contents {
		w.groups[c.key] = c
	}
	w.addressGroups(r)
	return w, nil
}

// place derives the groups of the ports of all pods.
func (r *Renderer) place() *wanted {
	w := &wanted{
		groups: map[string]*content{}, contents: map[string]*content{}, covered: map[string]int{}, ports: map[string]string{}, addrs: map[string][]netip.Prefix{}, pods: map[api.PodID]*content{},
		plugged: map[api.PodID]bool{}, owners: map[string]api.PodID{}, unclear: map[string]bool{}, portless: map[netip.Addr]api.PodID{},
	}
	ports := r.portsOf()
	used, refused := map[pair]bool{}, r.refused()
	for _, pod := range slices.SortedFunc(maps.Keys(r.desired.pods), api.PodID.Compare) {
		cfg := r.desired.pods[pod]
		var c *content
		if cfg.Ingress != nil || cfg.Egress != nil || len(r.options.DefaultGroups) == 0 {
			c = r.contentOf(pod, cfg, refused, used)
		}
		w.pod(r, pod, cfg, c, ports(pod, cfg))
	}
	maps.DeleteFunc(r.contents, func(p pair, _ *content) bool { return !used[p] })
	return w
}

// pod places one pod with its content; nil means the default groups.
func (w *wanted) pod(r *Renderer, pod api.PodID, cfg renderer.PodConfig, c *content, ports []*Port) {
	restricted, key := cfg.Ingress != nil || cfg.Egress != nil, ""
	if c != nil {
		key = c.key
		if restricted {
			w.pods[pod] = c
		}
	}
	switch {
	case len(ports) == 0 && restricted && r.options.Identify != nil:
		w.wait(r, pod, "no port is identified as its own")
		return
	case r.options.Identify == nil && ambiguous(ports):
		w.shared = append(w.shared, fmt.Errorf("pod %s: ports %s and %s have its address: %w", pod, ports[0].ID, ports[1].ID, ErrSharedPort))
		for _, p := range ports {
			w.unclear[p.ID] = true
		}
		return
	}
	if r.options.Identify == nil {
		for _, a := range cfg.IPs {
			if len(r.existing.at[a.Unmap()]) > 0 {
				continue
			}
			if w.portless[a] = pod; restricted {
				w.wait(r, pod, fmt.Sprintf("no port has its address %s", a))
			}
		}
	}
	for _, p := range ports {
		if p.Unprotected && restricted {
			w.wait(r, pod, fmt.Sprintf("port security of port %s is disabled", p.ID))
			continue
		}
		if first, taken := w.ports[p.ID]; taken && first != key {
			if r.options.Identify == nil && max(p.covered(cfg.IPs), w.covered[p.ID]) == len(p.IPs) {
				if p.covered(cfg.IPs) > w.covered[p.ID] {
					w.assign(p, pod, cfg, c)
				}
				continue
			}
			w.shared = append(w.shared, fmt.Errorf("pods %s and %s with other rules have port %s: %w", w.owners[p.ID], pod, p.ID, ErrSharedPort))
			w.close(r, p.ID)
			continue
		}
		w.assign(p, pod, cfg, c)
		w.plugged[pod] = w.plugged[pod] || restricted
	}
}

// assign gives a port the group of a pod. Of several pods with the address of a port, the one with
// most of its addresses counts: their rules permit the same from and to a shared address.
func (w *wanted) assign(p *Port, pod api.PodID, cfg renderer.PodConfig, c *content) {
	w.owners[p.ID], w.covered[p.ID] = pod, p.covered(cfg.IPs)
	w.ports[p.ID] = ""
	delete(w.contents, p.ID)
	if c != nil {
		w.ports[p.ID], w.contents[p.ID] = c.key, c
	}
}

// wait records why a pod with rules is not protected.
func (w *wanted) wait(r *Renderer, pod api.PodID, reason string) {
	w.pending = append(w.pending, renderer.Pending{Pod: pod, Reason: reason, Ends: r.reads.unplugged.Ends(pod, time.Now())})
}

// hasOwner reports whether a port is that of a pod.
func (w *wanted) hasOwner(port string) bool {
	_, ok := w.owners[port]
	return ok
}

// ambiguous reports whether two ports have one address.
func ambiguous(ports []*Port) bool {
	seen := map[netip.Addr]bool{}
	for _, p := range ports {
		for _, a := range p.IPs {
			if seen[a] {
				return true
			}
			seen[a] = true
		}
	}
	return false
}

// portsOf returns a function that returns the ports of a pod.
func (r *Renderer) portsOf() func(api.PodID, renderer.PodConfig) []*Port {
	if r.options.Identify == nil {
		return func(_ api.PodID, cfg renderer.PodConfig) (out []*Port) {
			for _, a := range cfg.IPs {
				for _, p := range r.existing.at[a.Unmap()] {
					if !slices.Contains(out, p) {
						out = append(out, p)
					}
				}
			}
			return out
		}
	}
	byPod := map[api.PodID][]*Port{}
	for _, id := range slices.Sorted(maps.Keys(r.existing.ports)) {
		if pod, ok := r.options.Identify(*r.existing.ports[id]); ok {
			byPod[pod] = append(byPod[pod], r.existing.ports[id])
		}
	}
	return func(pod api.PodID, _ renderer.PodConfig) []*Port { return byPod[pod] }
}

// pairOf returns the lists of a pod. The contract's directions are the vswitch's: its egress is
// traffic to the pod.
func (r *Renderer) pairOf(pod api.PodID, cfg renderer.PodConfig) pair {
	p := pair{lists: [2]*renderer.RuleList{api.Ingress: cfg.Egress, api.Egress: cfg.Ingress}}
	if r.options.NodeOf != nil {
		p.node = fmt.Sprint(r.options.NodeOf(pod))
	}
	return p
}

// builderFor returns what makes the content of a pod.
func (r *Renderer) builderFor(pod api.PodID) builder {
	b := r.builder
	if r.options.NodeOf == nil {
		return b
	}
	own := r.options.NodeOf(pod)
	b.ownNode = true
	b.members = func(id api.SetID) []netip.Prefix {
		if id != api.NodeSet {
			return r.builder.members(id)
		}
		return hosts(own)
	}
	return b
}

// contentOf returns the memoized content for the lists of a pod.
func (r *Renderer) contentOf(pod api.PodID, cfg renderer.PodConfig, refused map[side]capacity.Refusal, used map[pair]bool) *content {
	k := r.pairOf(pod, cfg)
	var permit [2]*permits.List
	for d, l := range k.lists {
		s := side{l, api.Direction(d), k.node}
		k.refused[d] = refused[s]
		if permit[d] = r.admission.costs[s].permits; l == nil {
			permit[d] = permitsOf(nil, s.direction)
		}
	}
	used[k] = true
	c := r.contents[k]
	if c == nil {
		b := r.builderFor(pod)
		c = b.build(k, permit, pod.Namespace)
		r.contents[k] = c
	}
	return c
}

func hosts(addrs []netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
	}
	return out
}

// retire gives ports that have a group of ours, and no pod, the default groups. Without such they
// get the group that permits nothing.
func (w *wanted) retire(r *Renderer) {
	for id, p := range r.existing.ports {
		if _, ok := w.ports[id]; ok || w.unclear[id] || len(r.existing.owned(p)) == 0 {
			continue
		}
		if w.ports[id] = ""; len(r.options.DefaultGroups) == 0 {
			w.close(r, id)
		}
	}
}

// close gives a port the group that permits nothing but exempt traffic.
func (w *wanted) close(r *Renderer, port string) {
	closed := r.closed()
	w.contents[port] = closed
	w.ports[port] = closed.key
}

// closed is the content of a group that permits nothing but exempt traffic.
func (r *Renderer) closed() *content {
	nothing := renderer.NewRuleList(nil, nil)
	none := [2]*permits.List{permitsOf(nothing, api.Ingress), permitsOf(nothing, api.Egress)}
	return r.builder.build(pair{lists: [2]*renderer.RuleList{nothing, nothing}}, none, "")
}

// addressGroups derives the address groups that the groups name.
func (w *wanted) addressGroups(r *Renderer) {
	for _, c := range w.groups {
		for name, remotes := range c.addrs {
			if _, ok := w.addrs[name]; !ok {
				w.addrs[name] = permits.Expand(remotes, r.builder.members)
			}
		}
	}
}

// reports returns what is not enforced exactly, with the number of pods. It returns before when
// nothing has changed.
func (w *wanted) reports(before []renderer.Unenforced) []renderer.Unenforced {
	pods := map[renderer.Unenforced]int{}
	for _, c := range w.pods {
		for _, u := range c.reports {
			pods[u]++
		}
	}
	now := make([]renderer.Unenforced, 0, len(pods))
	for u, n := range pods {
		u.Pods = n
		now = append(now, u)
	}
	if now = renderer.SortUnenforced(now); slices.Equal(now, before) {
		return before
	}
	return now
}
