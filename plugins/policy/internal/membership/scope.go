package membership

import (
	"iter"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// scope is the namespace part of selectors: one namespace, the namespaces that a selector selects,
// or all. Active selectors are indexed per scope by their pod part, so neither part is evaluated
// more often than necessary.
type scope struct {
	key    scopeKey
	sel    *intent.Selector // of a scope that is given by a selector
	plain  intent.SelectorIndex[*Selector]
	named  map[api.PortName]*intent.SelectorIndex[*Selector]
	nNamed int
	groups int          // of pods in the namespaces
	counts []scopeCount // of selectors that examine these groups
}

// scopeCount is how much selectors of a tally examine of each group of a scope.
type scopeCount struct {
	tally *Tally
	n     int
}

// count adds d selectors of a tally, or removes them.
func (sc *scope) count(t *Tally, d int) {
	t.Examined += d * sc.groups
	i := slices.IndexFunc(sc.counts, func(c scopeCount) bool { return c.tally == t })
	if i < 0 {
		sc.counts = append(sc.counts, scopeCount{t, d})
		return
	}
	if sc.counts[i].n += d; sc.counts[i].n == 0 {
		sc.counts = slices.Delete(sc.counts, i, i+1)
	}
}

// grow records that the scope has d more groups.
func (sc *scope) grow(d int) {
	sc.groups += d
	for _, c := range sc.counts {
		c.tally.Examined += d * c.n
	}
}

// scopes indexes scopes by the namespaces that they cover.
type scopes struct {
	byKey       map[scopeKey]*scope
	chosenIndex intent.SelectorIndex[*scope] // the scopes given by a selector
}

func newScopes() scopes { return scopes{byKey: map[scopeKey]*scope{}} }

// add adds a selector to its scope. It reports whether the scope is new.
func (x *scopes) add(sel *Selector) (added bool) {
	sc, ok := x.byKey[sel.key.scope]
	if !ok {
		sc = &scope{key: sel.key.scope, sel: sel.namespaces}
		x.byKey[sc.key] = sc
		if sc.key.selected {
			x.chosenIndex.Add(sc.sel, sc)
		}
	}
	sc.add(sel)
	sel.scope = sc
	return !ok
}

// remove removes a selector from its scope, and the scope when it is empty.
func (x *scopes) remove(sel *Selector) {
	sc := x.byKey[sel.key.scope]
	sc.remove(sel)
	if sc.size() > 0 {
		return
	}
	delete(x.byKey, sc.key)
	if sc.key.selected {
		x.chosenIndex.Remove(sc.sel, sc)
	}
}

// covering returns the scopes of a namespace. A namespace without labels is unknown, and no
// selector covers it.
func (x *scopes) covering(namespace string, labels intent.Labels) iter.Seq[*scope] {
	return func(yield func(*scope) bool) {
		if len(x.byKey) == 0 {
			return
		}
		for _, key := range [...]scopeKey{{}, {namespace: namespace}} {
			if sc, ok := x.byKey[key]; ok && !yield(sc) {
				return
			}
		}
		if labels == nil {
			return
		}
		for sc := range x.chosenIndex.Matching(labels) {
			if !yield(sc) {
				return
			}
		}
	}
}

// index returns the index of the selectors with a port name; the zero name selects those without
// one.
func (sc *scope) index(name api.PortName) *intent.SelectorIndex[*Selector] {
	if name == (api.PortName{}) {
		return &sc.plain
	}
	ix := sc.named[name]
	if ix == nil {
		ix = &intent.SelectorIndex[*Selector]{}
		if sc.named == nil {
			sc.named = map[api.PortName]*intent.SelectorIndex[*Selector]{}
		}
		sc.named[name] = ix
	}
	return ix
}

func (sc *scope) add(sel *Selector) {
	sc.index(sel.key.port).Add(sel.pods, sel)
	if sel.PerPort() {
		sc.nNamed++
	}
}

func (sc *scope) remove(sel *Selector) {
	ix := sc.index(sel.key.port)
	ix.Remove(sel.pods, sel)
	if !sel.PerPort() {
		return
	}
	sc.nNamed--
	if ix.Len() == 0 {
		delete(sc.named, sel.key.port)
	}
}

func (sc *scope) size() int { return sc.plain.Len() + sc.nNamed }

// all returns the selectors of the scope.
func (sc *scope) all() iter.Seq[*Selector] {
	return func(yield func(*Selector) bool) {
		for sel := range sc.plain.All() {
			if !yield(sel) {
				return
			}
		}
		for _, ix := range sc.named {
			for sel := range ix.All() {
				if !yield(sel) {
					return
				}
			}
		}
	}
}

// selectorsOf returns the selectors of the scope that match one of its groups.
func (sc *scope) selectorsOf(g *intent.Group) iter.Seq[*Selector] {
	return func(yield func(*Selector) bool) {
		for sel := range sc.plain.Matching(g.Labels) {
			if !yield(sel) {
				return
			}
		}
		if sc.nNamed == 0 {
			return
		}
		for i, port := range g.NamedPorts {
			ix := sc.named[port.PortName]
			if ix == nil || i > 0 && g.NamedPorts[i-1].PortName == port.PortName {
				continue
			}
			for sel := range ix.Matching(g.Labels) {
				if !yield(sel) {
					return
				}
			}
		}
	}
}
