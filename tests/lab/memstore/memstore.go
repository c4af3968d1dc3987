// Package memstore is a store in memory for tests of programs that write state to one.
package memstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/api/model"
)

// Prefix is the prefix of the keys of tests.
const Prefix = "/test"

// Store is a store in memory that counts what is written and fails on demand.
type Store struct {
	Mu      sync.Mutex
	Values  map[string][]byte
	Ops     []string // "put key" and "delete key" of objects, in order
	Marks   []string // the same of the marker
	Each    func()   // happens after each of both
	listErr error
	// writeErr fails a write after half of it was done.
	writeErr  error
	Meanwhile func()        // happens during the next write
	slow      chan struct{} // a list gives what it has read when it is closed; nil for at once
}

// New returns an empty store.
func New() *Store { return &Store{Values: map[string][]byte{}} }

// List implements the Store of package reflect.
func (s *Store) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	entries, revision, slow, err := s.read(prefix)
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	return entries, revision, err
}

func (s *Store) read(prefix string) (out []model.Entry, revision int64, slow chan struct{}, err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.listErr != nil {
		return nil, 0, s.slow, s.listErr
	}
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, model.Entry{Key: key, Value: s.Values[key]})
		}
	}
	return out, 1, s.slow, nil
}

// Slowly has lists take until the channel is closed; nil has them take no time.
func (s *Store) Slowly(until chan struct{}) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.slow = until
}

// Write implements it, too.
func (s *Store) Write(_ context.Context, puts []model.Entry, deletes []string) error {
	if f := s.Meanwhile; f != nil {
		s.Meanwhile = nil
		f()
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	left := len(puts) + len(deletes)
	if s.writeErr != nil {
		left /= 2
	}
	for _, e := range puts[:min(left, len(puts))] {
		s.Values[e.Key] = e.Value
		s.note("put", e.Key)
		left--
	}
	for _, key := range deletes[:min(left, len(deletes))] {
		delete(s.Values, key)
		s.note("delete", key)
	}
	return s.writeErr
}

// Fail makes lists and writes fail; nil mends them.
func (s *Store) Fail(list, write error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.listErr, s.writeErr = list, write
}

// Keys returns what the store holds, without the prefix.
func (s *Store) Keys() []string {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		if key != model.MarkerKey(Prefix) {
			out = append(out, strings.TrimPrefix(key, model.Root(Prefix)))
		}
	}
	return out
}

// note keeps what was done. Tests of the marker look at marks.
func (s *Store) note(what, key string) {
	if s.Each != nil {
		s.Each()
	}
	op := what + " " + strings.TrimPrefix(key, model.Root(Prefix))
	if key == model.MarkerKey(Prefix) {
		s.Marks = append(s.Marks, op)
		return
	}
	s.Ops = append(s.Ops, op)
}

// TakeOps returns the operations since the last call.
func (s *Store) TakeOps() []string {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	ops := s.Ops
	s.Ops = nil
	return ops
}

// TakeMarks returns the operations on the marker since the last call.
func (s *Store) TakeMarks() []string {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	marks := s.Marks
	s.Marks = nil
	return marks
}

// Put stores a value, as another client would.
func (s *Store) Put(key string, value []byte) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Values[key] = value
}

// Marker returns what a store has, nil when it has none that can be read.
func (s *Store) Marker() *model.Marker {
	m, err := model.DecodeMarker(s.Values[model.MarkerKey(Prefix)])
	if err != nil {
		return nil
	}
	return m
}

// Counts returns what the store holds.
func (s *Store) Counts() model.Counts {
	c := model.Counts{}
	for key := range s.Values {
		c.Add(model.Root(Prefix), key, 1)
	}
	return c
}
