package cache

import (
	"net/netip"
	"sync"

	"github.com/sluice-net/sluice/api"
)

// staged is the staged state, which the next Compute makes tables of.
type staged struct {
	orientation orientation

	pods     map[api.PodID]*pod
	addrs    addresses // addresses of the pods
	lists    lists     // rule lists of the pods
	sets     sets
	combiner combiner

	stale       stale
	changedPods map[api.PodID]struct{} // since the last acknowledgement
}

// reset makes a state empty. mu is locked while sets change.
func (s *staged) reset(o orientation, mu *sync.RWMutex) {
	*s = staged{
		orientation: o,
		pods:        make(map[api.PodID]*pod),
		addrs:       addresses{all: make(map[netip.Addr]*address)},
		lists:       newLists(o),
		stale:       stale{pods: make(map[api.PodID]*pod), touched: make(map[membershipChange]struct{}), judged: make(map[*list]struct{}), lists: make(map[*list]struct{})},
		changedPods: make(map[api.PodID]struct{}),
	}
	s.sets = sets{mu: mu, all: make(map[api.SetID]*set), changed: make(map[api.SetID]struct{})}
	s.combiner = combiner{orientation: o, inSet: s.sets.contain}
}

// stale is what has changed since the last Compute.
type stale struct {
	any     bool
	pods    map[api.PodID]*pod // their tables must be rebuilt
	touched map[membershipChange]struct{}
	judged  map[*list]struct{} // lists whose verdicts may all be others
	global  bool
	lists   map[*list]struct{} // opposite lists whose pods changed
}

// list marks the pods that an opposite list restricts, and the global table, for another look.
func (s *stale) list(l *list) {
	s.lists[l] = struct{}{}
	s.global = true
}

// membershipChange is a local address that joined or left a set.
type membershipChange struct {
	set  api.SetID
	addr netip.Addr
}

// mark schedules the table of a pod to be rebuilt.
func (s *staged) mark(p *pod) {
	s.stale.any = true
	s.stale.pods[p.id] = p
	s.changedPods[p.id] = struct{}{}
}
