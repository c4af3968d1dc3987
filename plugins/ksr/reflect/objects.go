package reflect

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// order is the order in which a Mirror writes, and the reverse of that in which
// it deletes: a pod is never in the store without the policies that its source had
// for it. Keys of no known kind come last.
var order = []model.Kind{
	model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy,
	model.KindNetworkPolicy, model.KindNamespace, model.KindNode, model.KindPod,
	model.KindService, model.KindEndpointSlice, kindUnknown,
}

// kindUnknown stands for the kind of a key that is below the root and that nobody
// could have reflected.
const kindUnknown model.Kind = ""

// maxBatch bounds what is handed to the store at once: what changes meanwhile is
// merged with what still waits.
const maxBatch = 1000

// objects has what a source wants and what the store is known to hold, object by
// object, as encoded bytes. Objects that differ are pending. It takes no lock.
type objects struct {
	prefix  string
	byKey   map[string]object
	pending map[model.Kind]map[string]time.Time // since when
	wanted  map[model.Kind]int
	held    model.Counts        // objects of each kind that the store is known to hold
	touched map[string]struct{} // keys written since the sweep under way began; nil without one
}

// object is one object. Either side is nil when the object does not exist there;
// both share their bytes when they are equal.
type object struct{ want, have []byte }

func (o object) same() bool {
	return (o.want == nil) == (o.have == nil) && bytes.Equal(o.want, o.have)
}

func newObjects(prefix string) objects {
	s := objects{
		prefix: prefix, byKey: map[string]object{}, pending: map[model.Kind]map[string]time.Time{},
		wanted: map[model.Kind]int{}, held: model.Counts{},
	}
	for _, k := range order {
		s.pending[k] = map[string]time.Time{}
	}
	return s
}

// kindOf returns the kind that a key of the store says, kindUnknown for what is no
// key of an object.
func (s *objects) kindOf(key string) model.Kind {
	id, err := model.ParseKey(s.prefix, key)
	if err != nil || !slices.Contains(order, id.Kind) {
		return kindUnknown
	}
	return id.Kind
}

// keysOf returns the keys of a kind that the source wants.
func (s *objects) keysOf(kind model.Kind) (keys []string) {
	root := model.Root(s.prefix) + string(kind) + "/"
	for key, o := range s.byKey {
		if o.want != nil && strings.HasPrefix(key, root) {
			keys = append(keys, key)
		}
	}
	return keys
}

// heldKeys returns the keys that the store is believed to hold.
func (s *objects) heldKeys() []string {
	keys := make([]string, 0, len(s.byKey))
	for key, o := range s.byKey {
		if o.have != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// want notes what the source wants of one object, nil for nothing, and reports whether
// that is new.
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

// settle stores an object and notes whether it is to be written.
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
	o.have = o.want // one copy
	s.byKey[key] = o
}

// left counts what is pending.
func (s *objects) left() (n int) {
	for _, keys := range s.pending {
		n += len(keys)
	}
	return n
}

// begin lets what is pending count from now on: nobody could write it before.
func (s *objects) begin(now time.Time) {
	for _, keys := range s.pending {
		for key := range keys {
			keys[key] = now
		}
	}
}

// writes is what is handed to the store at once.
type writes struct {
	puts    []model.Entry
	deletes []string
}

func (w writes) empty() bool { return len(w.puts)+len(w.deletes) == 0 }

// batch returns what is to be written next: puts by the order of kinds, and
// deletions, in the reverse order, once there is nothing left to put.
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

// pendingKeys returns pending keys of a kind that are of one sort, at most n, in
// their order.
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

// touch notes, for a sweep that is under way, what is written beside it.
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
	after, root := s.held.Clone(), model.Root(s.prefix)
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

// acknowledge takes over that the store holds a value, or with nil that it does not, and
// returns since when that was wanted. The source may want something else already; waited
// is false when it has taken back what was written.
func (s *objects) acknowledge(key string, value []byte, now time.Time) (since time.Time, waited bool) {
	kind := s.kindOf(key)
	since, waited = s.pending[kind][key]
	s.has(kind, key, s.byKey[key], value, now)
	return since, waited
}

// take takes over what a sweep found of one object, and returns 1 if that was not
// known, else 0. With adopt, what the source does not want is wanted: it has not said
// anything about the kind yet.
func (s *objects) take(key string, value []byte, adopt func(model.Kind) bool, now time.Time) (drift int) {
	if _, later := s.touched[key]; later || key == model.MarkerKey(s.prefix) {
		return 0
	}
	o, kind := s.byKey[key], s.kindOf(key)
	if old := (object{want: value, have: o.have}); !old.same() {
		drift = 1
	}
	if adopt(kind) && o.want == nil && value != nil {
		o.want = value
		s.wanted[kind]++
	}
	s.has(kind, key, o, value, now)
	return drift
}

// has notes what the store holds of an object.
func (s *objects) has(kind model.Kind, key string, o object, value []byte, now time.Time) {
	switch had := o.have != nil; {
	case kind == kindUnknown || had == (value != nil):
	case had:
		s.held[kind]--
	default:
		s.held[kind]++
	}
	o.have = value
	s.settle(kind, key, o, now)
}
