package cache

import (
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api/model"
)

// nameLabel is a label of every namespace; its value is the namespace's name. The API server
// restores it when it is removed, and so does the cache.
const nameLabel = "kubernetes.io/metadata.name"

// indexedGroups is the number of groups of a namespace from which they are indexed by label. With
// fewer groups a scan is cheaper.
const indexedGroups = 32

// namespace is a namespace that is known, or referred to by pods or policies.
type namespace struct {
	name     string
	labels   intent.Labels // nil: the Namespace object is not known
	epoch    uint32
	pods     int                                   // of any kind
	groups   []intent.GroupID                      // sorted
	postings *postings[intent.GroupID]             // of the groups, if there are many
	policies *intent.SelectorIndex[*intent.Policy] // by subject
	nPolicy  int
}

// namespaces are those that are known, or referred to by pods or policies.
type namespaces struct {
	list     []namespace
	byName   map[string]uint32
	free     []uint32
	postings postings[uint32] // known ones by label
	known    int
}

// indexOrAdd returns the index of a namespace, and adds it if it is new.
func (x *namespaces) indexOrAdd(name string) uint32 {
	if n, ok := x.byName[name]; ok {
		return n
	}
	n := alloc(&x.list, &x.free)
	x.list[n] = namespace{name: name}
	x.byName[name] = n
	return n
}

// tidy removes a namespace that nothing refers to any more. It does nothing if the slot is already
// free.
func (x *namespaces) tidy(n uint32) {
	ns := &x.list[n]
	if ns.name == "" || ns.labels != nil || ns.pods > 0 || ns.nPolicy > 0 || len(ns.groups) > 0 {
		return
	}
	delete(x.byName, ns.name)
	*ns = namespace{}
	x.free = append(x.free, n)
}

func (x *namespaces) apply(name string, m *model.Namespace, s *scratch, w update) {
	if m == nil {
		if n, ok := x.byName[name]; ok {
			x.setLabels(n, nil, w)
		}
		return
	}
	labels := slices.Clone(s.readLabels(m.GetLabels()))
	if v, ok := labels.Get(nameLabel); !ok || v != name {
		labels = intent.NewLabels(append(labels, intent.Label{Key: nameLabel, Value: name}))
	}
	x.setLabels(x.indexOrAdd(name), labels, w)
}

// setLabels sets the labels of a namespace; nil makes it unknown.
func (x *namespaces) setLabels(n uint32, labels intent.Labels, w update) {
	ns := &x.list[n]
	ns.epoch = w.epoch
	old := ns.labels
	if (old == nil) == (labels == nil) && slices.Equal(old, labels) {
		x.tidy(n)
		return
	}
	x.postings.remove(withoutName(old), n)
	x.postings.add(withoutName(labels), n)
	if old == nil {
		x.known++
	}
	if labels == nil {
		x.known--
	}
	ns.labels = labels
	w.NamespaceChanged(ns.name, old, labels)
	x.tidy(n)
}

// withoutName drops the name label: namespaces are found by name already.
func withoutName(l intent.Labels) intent.Labels {
	i := slices.IndexFunc(l, func(x intent.Label) bool { return x.Key == nameLabel })
	if i < 0 {
		return l
	}
	return slices.Concat(l[:i], l[i+1:])
}

// each calls yield for every known namespace that the selector matches, until yield returns false.
func (x *namespaces) each(sel *intent.Selector, yield func(*namespace) bool) {
	match := func(n uint32) bool {
		ns := &x.list[n]
		return ns.labels == nil || !sel.Matches(ns.labels) || yield(ns)
	}
	for _, r := range sel.Requirements() {
		if r.Key == nameLabel && r.Operator == intent.In {
			eachID(r.Values, func(name string) bool {
				n, ok := x.byName[name]
				return !ok || match(n)
			})
			return
		}
	}
	if r, ok := x.pivot(sel); ok {
		x.postings.each(r, match)
		return
	}
	for n := range x.list {
		if !match(uint32(n)) {
			return
		}
	}
}

// pivot returns the requirement by which to find namespaces, unless all have to be scanned.
func (x *namespaces) pivot(sel *intent.Selector) (intent.Requirement, bool) {
	r, size, ok := x.postings.candidates(sel)
	return r, ok && size < x.known && r.Key != nameLabel
}
