// Package interned finds values that are in use, so that equal ones are stored once.
package interned

import (
	"runtime"
	"sync"
	"weak"
)

// Values are values by key. They are not kept: what nothing else refers to is forgotten. The zero
// value is empty and ready to use; it is safe for concurrent use.
type Values[K comparable, V any] struct {
	mu sync.Mutex
	by map[K]weak.Pointer[V]
}

// Get returns the value that was put last under a key, nil if it is no longer in use.
func (s *Values[K, V]) Get(key K) *V {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[key].Value()
}

// Put stores a value, which may be a part of a larger one.
func (s *Values[K, V]) Put(key K, v *V) {
	runtime.AddCleanup(v, s.forget, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = make(map[K]weak.Pointer[V])
	}
	s.by[key] = weak.Make(v)
}

// forget removes a key whose value is no longer in use.
func (s *Values[K, V]) forget(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[key].Value() == nil {
		delete(s.by, key)
	}
}
