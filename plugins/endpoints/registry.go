package endpoints

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
)

// ErrNoLink is returned for a claim of an interface that does not exist.
var ErrNoLink = errors.New("there is no such interface at this node")

// maxClaims bounds the claims of a node, far above the possible number of pods.
const maxClaims = 1 << 14

// Registry tracks the pods of interfaces. It is a state machine: it calls nothing, and only one
// goroutine at a time may call its methods.
type Registry struct {
	now    func() time.Time
	nodes  map[uint32]*node // existing interfaces by index
	claims map[key]Claim    // of existing interfaces
	pods   map[api.PodID]bool
	uids   map[api.PodID]string // by which policy knows pods of this node
	dirty  map[uint32]bool      // whose state changed since the last Changes
	sorted *sorted              // nil after a change of claims
	stale  bool                 // states are outdated
}

// node is an existing interface.
type node struct {
	link     Link
	state    Endpoint
	offered  bool      // to policy for its pod, since its claims last changed
	enforced api.PodID // pod whose policy is in force, and was offered; the zero value for none
	known    bool      // policy has known its pod since its claims last changed
	differs  string    // why it was not offered
	last     Claim     // last withdrawn claim
}

// NewRegistry returns an empty registry. now is the clock; nil means the system clock.
func NewRegistry(now func() time.Time) *Registry {
	if now == nil {
		now = time.Now
	}
	return &Registry{now: now, nodes: map[uint32]*node{}, claims: map[key]Claim{}, pods: map[api.PodID]bool{}, uids: map[api.PodID]string{}, dirty: map[uint32]bool{}}
}

// Link adds an interface, or updates its name. It must be called for every such change: an index
// refers to the same interface until Gone.
func (r *Registry) Link(l Link) {
	n := r.nodes[l.Index]
	if n == nil {
		n = &node{}
		r.nodes[l.Index] = n
	}
	n.link = l
	for k, c := range r.claims {
		if c.Link.Index == l.Index {
			c.Link = l
			r.claims[k] = c
		}
	}
	r.changed()
}

// changed marks all states as outdated.
func (r *Registry) changed() { r.sorted, r.stale = nil, true }

// Gone removes an interface. Its claims end.
func (r *Registry) Gone(index uint32) {
	if r.nodes[index] == nil {
		return
	}
	delete(r.nodes, index)
	r.dirty[index] = true
	maps.DeleteFunc(r.claims, func(_ key, c Claim) bool { return c.Link.Index == index })
	r.changed()
}

// Resync sets all existing interfaces, after changes may have been missed: a different MAC address
// means a different interface.
func (r *Registry) Resync(all []Link) {
	there := map[uint32]Link{}
	for _, l := range all {
		there[l.Index] = l
	}
	for index, n := range r.nodes {
		if l, ok := there[index]; !ok || !n.link.is(l) {
			r.Gone(index)
		}
	}
	for _, l := range all {
		r.Link(l)
	}
}

// Claim claims an interface for a pod.
func (r *Registry) Claim(c Claim) error {
	n := r.nodes[c.Link.Index]
	if n == nil || !n.link.is(c.Link) {
		return fmt.Errorf("interface %s (%d): %w", c.Link.Name, c.Link.Index, ErrNoLink)
	}
	old, known := r.claims[c.key()]
	if !known && len(r.claims) >= maxClaims {
		return fmt.Errorf("interface %s (%d): there are %d claims already", c.Link.Name, c.Link.Index, maxClaims)
	}
	c.Link = n.link
	if c.Since.IsZero() {
		c.Since = r.now()
	}
	if known && old.samePod(c) && old.Link.is(c.Link) {
		c.Since = old.Since
	}
	best, why := r.bound(c.Link.Index)
	r.claims[c.key()] = c
	r.changed()
	if known && old.Link.Index != c.Link.Index {
		r.unbind(old.Link.Index)
	}
	// A claim that agrees with the best one changes nothing.
	if b, w := r.bound(c.Link.Index); why != "" || w != "" || b.key() != best.key() || !b.samePod(best) || !slices.Equal(b.IPs, best.IPs) {
		r.unbind(c.Link.Index)
	}
	return nil
}

// Found sets all claims of a source for an interface, if there are any: its other claims for the
// interface end. An empty list has no effect.
func (r *Registry) Found(source Source, link Link, claims []Claim) error {
	if len(claims) == 0 {
		return nil
	}
	now := map[key]bool{}
	var errs []error
	for _, c := range claims {
		c.Source, c.Link = source, link
		now[c.key()] = true
		errs = append(errs, r.Claim(c))
	}
	for _, c := range r.Claims() { // the last withdrawn one is shown
		if c.Source == source && c.Link.is(link) && !now[c.key()] {
			r.withdraw(c.key())
		}
	}
	return errors.Join(errs...)
}

// Withdraw ends a claim, and reports whether it existed. The interface is blocked unless other
// claims name the same pod.
func (r *Registry) Withdraw(source Source, owner string) bool {
	return r.withdraw(key{source, owner})
}

func (r *Registry) withdraw(k key) bool {
	c, ok := r.claims[k]
	if !ok {
		return false
	}
	delete(r.claims, k)
	r.unbind(c.Link.Index)
	r.nodes[c.Link.Index].last = c
	r.changed()
	return true
}

// unbind makes an interface enforced only after its pod's policy was requested and acknowledged
// again.
func (r *Registry) unbind(index uint32) {
	if n := r.nodes[index]; n != nil {
		n.offered, n.enforced, n.known, n.differs = false, api.PodID{}, false, ""
	}
}

// Offer returns the interfaces at which the policy of a pod must be enforced, by index. ips are the
// addresses by which policy knows the pod: a claim with other addresses only belongs to another pod
// of the same name.
func (r *Registry) Offer(pod api.PodID, ips []netip.Addr) (out []uint32) {
	for _, c := range r.order().pod[pod] {
		index := c.Link.Index
		best, why := r.bound(index)
		if why != "" || best.Pod != pod || slices.Contains(out, index) {
			continue
		}
		n, ok := r.nodes[index], overlap(best.IPs, ips)
		r.stale = r.stale || n.offered != ok
		n.differs = ""
		if n.offered = ok; ok {
			out = append(out, index)
		} else {
			n.differs = fmt.Sprintf("policy knows its pod by other addresses, %v: it was registered with %v", ips, best.IPs)
		}
	}
	slices.Sort(out)
	return out
}

// overlap reports whether two lists of addresses have one in common, or one of them is not known.
func overlap(a, b []netip.Addr) bool {
	return len(a) == 0 || slices.ContainsFunc(a, func(x netip.Addr) bool { return slices.Contains(b, x.Unmap()) })
}

// Identify sets the UIDs by which policy knows the pods of the node: in addition to earlier ones
// or, with all, instead of them. An empty UID means that policy does not know the pod, or not its
// UID. It must be called before policy uses these UIDs: interfaces claimed for another UID of a pod
// are not offered.
func (r *Registry) Identify(uids map[api.PodID]string, all bool) {
	if all {
		clear(r.uids)
	}
	for pod, uid := range uids {
		if r.uids[pod] = uid; uid == "" {
			delete(r.uids, pod)
		}
	}
	for index, n := range r.nodes {
		if _, why := r.bound(index); strings.HasPrefix(why, reasonLife) {
			n.offered, n.enforced = false, api.PodID{}
		}
	}
	r.stale = true
}

// Addresses returns the addresses with which pods were claimed, for interfaces bound to these pods.
// It omits pods that policy knows by another UID.
func (r *Registry) Addresses() map[api.PodID][]netip.Addr {
	out := map[api.PodID][]netip.Addr{}
	for index := range r.nodes {
		c, why := r.bound(index)
		for _, a := range c.IPs {
			if why == "" && !slices.Contains(out[c.Pod], a.Unmap()) {
				out[c.Pod] = append(out[c.Pod], a.Unmap())
			}
		}
	}
	return out
}

// Acknowledge reports which pods policy knows, and at which interfaces it is enforced, for which
// pod.
func (r *Registry) Acknowledge(pods map[api.PodID]bool, enforced map[uint32]api.PodID) {
	r.pods = pods
	for index, n := range r.nodes {
		n.enforced = api.PodID{}
		if n.offered {
			n.enforced = enforced[index]
		}
		if c, why := r.bound(index); why == "" && pods[c.Pod] {
			n.known = true
		}
	}
	r.stale = true
}

// Claimed reports whether there is a claim for an interface.
func (r *Registry) Claimed(index uint32) bool { return len(r.order().link[index]) > 0 }

// Endpoints returns all interfaces, by index.
func (r *Registry) Endpoints() []Endpoint {
	r.settle()
	out := make([]Endpoint, 0, len(r.nodes))
	for _, index := range slices.Sorted(maps.Keys(r.nodes)) {
		out = append(out, r.nodes[index].state)
	}
	return out
}

// Endpoint returns the endpoint of an interface.
func (r *Registry) Endpoint(index uint32) (Endpoint, bool) {
	r.settle()
	if n := r.nodes[index]; n != nil {
		return n.state, true
	}
	return Endpoint{}, false
}

// Owned returns the interface of a claim.
func (r *Registry) Owned(source Source, owner string) (Endpoint, bool) {
	c, ok := r.claims[key{source, owner}]
	if !ok {
		return Endpoint{}, false
	}
	return r.Endpoint(c.Link.Index)
}

// Claims returns all claims in a deterministic order.
func (r *Registry) Claims() []Claim {
	return slices.SortedFunc(maps.Values(r.claims), compareClaims)
}

// Changes returns the interfaces whose state changed since the last call, by index. Removed ones
// are not among Endpoints.
func (r *Registry) Changes() []uint32 {
	r.settle()
	out := slices.Sorted(maps.Keys(r.dirty))
	clear(r.dirty)
	return out
}
