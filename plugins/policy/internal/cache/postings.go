package cache

import (
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"
)

// postings lists, per label and per key, the ids that have it, sorted.
type postings[ID ~uint32] struct {
	labels map[intent.Label][]ID
	keys   map[string][]ID
}

func newPostings[ID ~uint32]() postings[ID] {
	return postings[ID]{labels: map[intent.Label][]ID{}, keys: map[string][]ID{}}
}

func (p *postings[ID]) add(l intent.Labels, id ID) {
	for _, kv := range l {
		p.labels[kv] = insertID(p.labels[kv], id)
		p.keys[kv.Key] = insertID(p.keys[kv.Key], id)
	}
}

func (p *postings[ID]) remove(l intent.Labels, id ID) {
	for _, kv := range l {
		setList(p.labels, kv, removeID(p.labels[kv], id))
		setList(p.keys, kv.Key, removeID(p.keys[kv.Key], id))
	}
}

func setList[K comparable, ID any](m map[K][]ID, k K, list []ID) {
	if len(list) == 0 {
		delete(m, k)
		return
	}
	m[k] = list
}

// candidates returns the requirement of the selector with the fewest ids and their number; ok is
// false if no requirement is positive, so that every id is a candidate.
func (p *postings[ID]) candidates(sel *intent.Selector) (best intent.Requirement, size int, ok bool) {
	for _, r := range sel.Requirements() {
		n := 0
		switch r.Operator {
		case intent.In:
			for _, v := range r.Values {
				n += len(p.labels[intent.Label{Key: r.Key, Value: v}])
			}
		case intent.Exists:
			n = len(p.keys[r.Key])
		default:
			continue
		}
		if !ok || n < size {
			best, size, ok = r, n, true
		}
	}
	return best, size, ok
}

// each calls yield for every id that a requirement of candidates has, each once
// (an object has one value per key), until it returns false.
func (p *postings[ID]) each(r intent.Requirement, yield func(ID) bool) bool {
	if r.Operator == intent.Exists {
		return eachID(p.keys[r.Key], yield)
	}
	for _, v := range r.Values {
		if !eachID(p.labels[intent.Label{Key: r.Key, Value: v}], yield) {
			return false
		}
	}
	return true
}

func eachID[ID any](ids []ID, yield func(ID) bool) bool {
	for _, id := range ids {
		if !yield(id) {
			return false
		}
	}
	return true
}

func insertID[ID ~uint32](ids []ID, id ID) []ID {
	if n := len(ids); n == 0 || ids[n-1] < id {
		return append(ids, id)
	}
	i, found := slices.BinarySearch(ids, id)
	if found {
		return ids
	}
	return slices.Insert(ids, i, id)
}

func removeID[ID ~uint32](ids []ID, id ID) []ID {
	i, found := slices.BinarySearch(ids, id)
	if !found {
		return ids
	}
	return slices.Delete(ids, i, i+1)
}
