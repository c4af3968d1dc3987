package membership

import (
	"iter"

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
}

// scopes indexes scopes by the namespaces that they cover.
type scopes struct {
	byKey       map[scopeKey]*scope
	chosenIndex intent.SelectorIndex[*scope] // the scopes given by a selector
}

func newScopes() scopes { return scopes{byKey: map[scopeKey]*scope{}} }

// add adds a selector to its scope.
func (x *scopes) add(sel *Selector) {
	sc, ok := x.byKey[sel.key.scope]
	if !ok {
		sc = &scope{key: sel.key.scope, sel: sel.namespaces}
		x.byKey[sc.key] = sc
		if sc.key.selected {
			x.chosenIndex.Add(sc.sel, sc)
		}
	}
	sc.add(sel)
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
