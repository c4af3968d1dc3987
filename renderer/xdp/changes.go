package xdp

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// txn implements renderer.Txn. It keeps what is told in order, and is applied by Commit.
type txn struct {
	r      *Renderer
	resync bool
	pods   map[api.PodID]*renderer.PodConfig // nil: removed
	sets   map[api.SetID]map[netip.Prefix]bool
}

// NewTxn starts a transaction.
func (r *Renderer) NewTxn(resync bool) renderer.Txn {
	return &txn{r: r, resync: resync, pods: map[api.PodID]*renderer.PodConfig{}, sets: map[api.SetID]map[netip.Prefix]bool{}}
}

// UpdateSet records the change of a set; the last that is said of a member counts.
func (t *txn) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	set := t.sets[id]
	if set == nil {
		set = make(map[netip.Prefix]bool, len(added)+len(removed))
		t.sets[id] = set
	}
	for _, p := range removed {
		set[p] = false
	}
	for _, p := range added {
		set[p] = true
	}
}

// Render records the configuration of a pod.
func (t *txn) Render(pod api.PodID, cfg renderer.PodConfig) { t.pods[pod] = &cfg }

// Remove records the removal of a pod.
func (t *txn) Remove(pod api.PodID) { t.pods[pod] = nil }

// told is everything that was told, and a sum that identifies it.
type told struct {
	pods map[api.PodID]renderer.PodConfig
	mark Mark // of the sets; that of endpoints is added by the renderer

	mu     sync.RWMutex // held where sets change; whoever commits reads them without
	sets   map[api.SetID]map[netip.Prefix]struct{}
	before map[api.SetID]map[netip.Prefix]bool // whether what changed was a member when a Commit worked last
}

// acknowledge calls f when what is told is what is installed.
func (t *told) acknowledge(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.before)
	f()
}

// wasIn reports whether an address was in a set when a Commit worked last. mu is held.
func (t *told) wasIn(id api.SetID, a netip.Addr) bool {
	set, before := t.sets[id], t.before[id]
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return false
		}
		was, changed := before[p]
		if _, in := set[p]; was || in && !changed {
			return true
		}
	}
	return false
}

// put changes a member, and keeps whether it was one.
func (t *told) put(id api.SetID, p netip.Prefix, in bool) {
	if t.before[id] == nil {
		t.before[id] = map[netip.Prefix]bool{}
	}
	if _, known := t.before[id][p]; !known {
		t.before[id][p] = !in
	}
	if in {
		t.sets[id][p] = struct{}{}
	} else {
		delete(t.sets[id], p)
	}
	t.mark.toggle(memberKey(id, p))
}

// apply takes over a transaction. update is called with every set that has other members.
func (t *told) apply(x *txn, update func(id api.SetID, added, removed []netip.Prefix)) {
	if x.resync {
		for pod := range t.pods {
			if _, ok := x.pods[pod]; !ok {
				delete(t.pods, pod)
			}
		}
		for id := range t.sets {
			if _, ok := x.sets[id]; !ok {
				x.sets[id] = nil
			}
		}
	}
	for pod, cfg := range x.pods {
		if cfg == nil {
			delete(t.pods, pod)
		} else {
			t.pods[pod] = *cfg
		}
	}
	for _, id := range slices.Sorted(maps.Keys(x.sets)) {
		if added, removed := t.change(id, x.sets[id], x.resync); len(added)+len(removed) > 0 {
			update(id, added, removed)
		}
	}
}

// change changes a set and returns what really changed. With whole, members that are not
// named are removed.
func (t *told) change(id api.SetID, want map[netip.Prefix]bool, whole bool) (added, removed []netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set := t.sets[id]
	if set == nil {
		set = make(map[netip.Prefix]struct{}, len(want))
		t.sets[id] = set
	}
	if whole {
		for p := range set {
			if !want[p] {
				removed = append(removed, p)
			}
		}
	}
	for p, in := range want {
		switch _, is := set[p]; {
		case in && !is:
			added = append(added, p)
		case !in && is && !whole:
			removed = append(removed, p)
		}
	}
	for _, p := range removed {
		t.put(id, p, false)
	}
	for _, p := range added {
		t.put(id, p, true)
	}
	if len(set) == 0 {
		delete(t.sets, id)
	}
	return added, removed
}

// memberKey identifies that a prefix is in a set.
func memberKey(id api.SetID, p netip.Prefix) []byte {
	var buf [48]byte
	b := binary.LittleEndian.AppendUint64(append(buf[:0], 'm'), uint64(id))
	a := p.Addr().As16()
	return append(append(b, a[:]...), byte(p.Bits()), byte(p.Addr().BitLen()))
}

// toggle adds something to a sum, or takes it off: the order of what is added means nothing.
func (m *Mark) toggle(key []byte) {
	sum := sha256.Sum256(key)
	for i := range m {
		m[i] ^= sum[i]
	}
}
