package cache

import (
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api/model"
)

// nameLabel is on every namespace, with the namespace's name as value. The API
// server puts it back when it is removed; so does the cache.
const nameLabel = "kubernetes.io/metadata.name"

// indexedGroups is the number of groups of a namespace from which on they are
// indexed by label. Below that, looking at each is cheaper.
const indexedGroups = 32

// namespace holds a namespace that is known, or that pods or policies name.
type namespace struct {
	name     string
	labels   intent.Labels // nil: the Namespace object is not known
	epoch    uint32
	pods     int                                   // of any kind
	groups   []intent.GroupID                      // sorted
	postings *postings[intent.GroupID]             // of the groups, when there are many
	policies *intent.SelectorIndex[*intent.Policy] // by subject
	nPolicy  int
}

// ns returns the place of a namespace, making one when nobody named it before.
func (c *Cache) ns(name string) uint32 {
	if n, ok := c.nsByName[name]; ok {
		return n
	}
	n := alloc(&c.namespaces, &c.freeNS)
	c.namespaces[n] = namespace{name: name}
	c.nsByName[name] = n
	return n
}

// tidyNS forgets a namespace that nothing names any more. It may be called when
// the place is free already.
func (c *Cache) tidyNS(n uint32) {
	ns := &c.namespaces[n]
	if ns.name == "" || ns.labels != nil || ns.pods > 0 || ns.nPolicy > 0 || len(ns.groups) > 0 {
		return
	}
	delete(c.nsByName, ns.name)
	*ns = namespace{}
	c.freeNS = append(c.freeNS, n)
}

func (c *Cache) applyNamespace(name string, m *model.Namespace, w Watcher) {
	if m == nil {
		if n, ok := c.nsByName[name]; ok {
			c.setLabels(n, nil, w)
		}
		return
	}
	labels := slices.Clone(c.scratch.readLabels(m.GetLabels()))
	if v, ok := labels.Get(nameLabel); !ok || v != name {
		labels = intent.NewLabels(append(labels, intent.Label{Key: nameLabel, Value: name}))
	}
	c.setLabels(c.ns(name), labels, w)
}

// setLabels changes the labels of a namespace; nil makes it unknown.
func (c *Cache) setLabels(n uint32, labels intent.Labels, w Watcher) {
	ns := &c.namespaces[n]
	ns.epoch = c.epoch
	old := ns.labels
	if (old == nil) == (labels == nil) && slices.Equal(old, labels) {
		c.tidyNS(n)
		return
	}
	c.nsPostings.remove(withoutName(old), n)
	c.nsPostings.add(withoutName(labels), n)
	if old == nil {
		c.nsCount++
	}
	if labels == nil {
		c.nsCount--
	}
	ns.labels = labels
	w.NamespaceChanged(ns.name, old, labels)
	c.tidyNS(n)
}

// withoutName leaves out the label that is as good as the name: namespaces are
// found by name already.
func withoutName(l intent.Labels) intent.Labels {
	i := slices.IndexFunc(l, func(x intent.Label) bool { return x.Key == nameLabel })
	if i < 0 {
		return l
	}
	return slices.Concat(l[:i], l[i+1:])
}

// eachNamespace calls yield for every known namespace that the selector matches,
// until it returns false.
func (c *Cache) eachNamespace(sel *intent.Selector, yield func(*namespace) bool) {
	match := func(n uint32) bool {
		ns := &c.namespaces[n]
		return ns.labels == nil || !sel.Matches(ns.labels) || yield(ns)
	}
	for _, r := range sel.Requirements() {
		if r.Key == nameLabel && r.Operator == intent.In {
			eachID(r.Values, func(name string) bool {
				n, ok := c.nsByName[name]
				return !ok || match(n)
			})
			return
		}
	}
	if r, ok := c.nsPivot(sel); ok {
		c.nsPostings.each(r, match)
		return
	}
	for n := range c.namespaces {
		if !match(uint32(n)) {
			return
		}
	}
}

// nsPivot returns the requirement to find namespaces by, unless all of them have
// to be looked at.
func (c *Cache) nsPivot(sel *intent.Selector) (intent.Requirement, bool) {
	r, size, ok := c.nsPostings.candidates(sel)
	return r, ok && size < c.nsCount && r.Key != nameLabel
}
