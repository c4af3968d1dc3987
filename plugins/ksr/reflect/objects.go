package reflect

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// order is the order in which a Mirror writes, and the reverse of that in which it deletes: the
// store never holds a pod without the policies that its source had for it. Keys of unknown kinds
// come last.
var order = []model.Kind{
	model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy,
	model.KindNetworkPolicy, model.KindNamespace, model.KindNode, model.KindPod,
	model.KindService, model.KindEndpointSlice, kindUnknown,
}

// kindUnknown is the kind of keys below the root that no reflector writes.
const kindUnknown model.Kind = ""

// maxBatch bounds what is written at once: changes in the meantime are merged with what is still
// pending.
const maxBatch = 1000

// objects holds the desired state of a source and the known state of the store, object by object,
// as encoded bytes. Objects that differ are pending. It takes no lock.
type objects struct {
	prefix  string
	byKey   map[string]object
	pending map[model.Kind]map[string]time.Time // since when they are pending
	wanted  map[model.Kind]int
	counts  model.Counts        // known number of objects of each kind in the store
	touched map[string]struct{} // keys written since the current sweep began; nil without one
}

// object is one object. A side is nil if the object does not exist there; equal sides share their
// bytes.
type object struct{ want, have []byte }

func (o object) same() bool {
	return (o.want == nil) == (o.have == nil) && bytes.Equal(o.want, o.have)
}

func newObjects(prefix string) objects {
	s := objects{
		prefix: prefix, byKey: map[string]object{}, pending: map[model.Kind]map[string]time.Time{},
		wanted: map[model.Kind]int{}, counts: model.Counts{},
	}
	for _, k := range order {
		s.pending[k] = map[string]time.Time{}
	}
	return s
}

// kindOf returns the kind in a key of the store, or kindUnknown if the key is not that of an
// object.
func (s *objects) kindOf(key string) model.Kind {
	id, err := model.ParseKey(s.prefix, key)
	if err != nil || !slices.Contains(order, id.Kind) {
		return kindUnknown
	}
	return id.Kind
}

// keysOf returns the desired keys of a kind.
func (s *objects) keysOf(kind model.Kind) (keys []string) {
	root := model.Root(s.prefix) + string(kind) + "/"
	for key, o := range s.byKey {
		if o.want != nil && strings.HasPrefix(key, root) {
			keys = append(keys, key)
		}
	}
	return keys
}

// heldKeys returns the keys that the store is known to hold.
func (s *objects) heldKeys() []string {
	keys := make([]string, 0, len(s.byKey))
	for key, o := range s.byKey {
		if o.have != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// want sets the desired value of one object, nil for none, and reports whether it changed.
func (s *objects) want(kind model.Kind, key string, value []byte) bool {
	o := s.byKey[key]
	if (value == nil) == (o.want == nil) && bytes.Equal(value, o.want) {
		return false
	}
	switch {
	case o.want == nil:
		s.wanted[kind]++
	case value == nil:
		s.wanted[kind]--
	}
	o.want = value
	s.settle(kind, key, o, time.Now())
	return true
}

// settle stores an object and records whether it must be written.
func (s *objects) settle(kind model.Kind, key string, o object, now time.Time) {
	if !o.same() {
		s.byKey[key] = o
		if _, ok := s.pending[kind][key]; !ok {
			s.pending[kind][key] = now
		}
		return
	}
	delete(s.pending[kind], key)
	if o.want == nil {
		delete(s.byKey, key)
		return
	}
	o.have = o.want // share one copy
	s.byKey[key] = o
}

// countPending returns the number of pending objects.
func (s *objects) countPending() (n int) {
	for _, keys := range s.pending {
		n += len(keys)
	}
	return n
}

// begin restarts the clock of pending objects: they could not be written before.
func (s *objects) begin(now time.Time) {
	for _, keys := range s.pending {
		for key := range keys {
			keys[key] = now
		}
	}
}

// writes is what is written to the store at once.
type writes struct {
	puts    []model.Entry
	deletes []string
}

func (w writes) empty() bool { return len(w.puts)+len(w.deletes) == 0 }

// batch returns what to write next: puts in the order of kinds, and deletions, in the reverse
// order, once nothing is left to put.
func (s *objects) batch() (b writes) {
	for _, kind := range order {
		for _, key := range s.pendingKeys(kind, maxBatch-len(b.puts), func(o object) bool { return o.want != nil }) {
			b.puts = append(b.puts, model.Entry{Key: key, Value: s.byKey[key].want})
		}
	}
	for _, kind := range slices.Backward(order) {
		b.deletes = append(b.deletes, s.pendingKeys(kind, maxBatch-len(b.puts)-len(b.deletes), func(o object) bool { return o.want == nil })...)
	}
	s.touch(b)
	return b
}

// pendingKeys returns at most n pending keys of a kind for which of holds, sorted.
func (s *objects) pendingKeys(kind model.Kind, n int, of func(object) bool) (keys []string) {
	for key := range s.pending[kind] {
		if len(keys) == n {
			break
		}
		if of(s.byKey[key]) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// touch records what is written during the current sweep.
func (s *objects) touch(b writes) {
	if s.touched == nil {
		return
	}
	for _, e := range b.puts {
		s.touched[e.Key] = struct{}{}
	}
	for _, key := range b.deletes {
		s.touched[key] = struct{}{}
	}
}

// countsAfter returns how many objects the store holds after a batch.
func (s *objects) countsAfter(b writes) model.Counts {
	after, root := s.counts.Clone(), model.Root(s.prefix)
	for _, e := range b.puts {
		if s.byKey[e.Key].have == nil {
			after.Add(root, e.Key, 1)
		}
	}
	for _, key := range b.deletes {
		if s.byKey[key].have != nil && s.kindOf(key) != kindUnknown {
			after.Add(root, key, -1)
		}
	}
	return after
}

// acknowledge records that the store holds a value (nil for none), and returns since when it was
// pending. The desired value may have changed again; waited is false if the source has reverted the
// change.
func (s *objects) acknowledge(key string, value []byte, now time.Time) (since time.Time, waited bool) {
	kind := s.kindOf(key)
	since, waited = s.pending[kind][key]
	s.recordStored(kind, key, s.byKey[key], value, now)
	return since, waited
}

// adoptFound takes over what a sweep found of one object, and returns 1 if that was not known, else 0.
// The value of the store is wanted if adopts says so.
func (s *objects) adoptFound(key string, value []byte, adopts func(model.Kind, string, object, []byte) bool, now time.Time) (drift int) {
	if _, later := s.touched[key]; later || key == model.MarkerKey(s.prefix) {
		return 0
	}
	o, kind := s.byKey[key], s.kindOf(key)
	if old := (object{want: value, have: o.have}); !old.same() {
		drift = 1
	}
	if value != nil && adopts(kind, key, o, value) {
		if o.want == nil {
			s.wanted[kind]++
		}
		o.want = value
	}
	s.recordStored(kind, key, o, value, now)
	return drift
}

// recordStored records what the store holds of an object.
func (s *objects) recordStored(kind model.Kind, key string, o object, value []byte, now time.Time) {
	switch had := o.have != nil; {
	case kind == kindUnknown || had == (value != nil):
	case had:
		s.counts[kind]--
	default:
		s.counts[kind]++
	}
	o.have = value
	s.settle(kind, key, o, now)
}
