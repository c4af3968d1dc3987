package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// MarkerKey returns the key of the completeness marker. It is below Root, so that one list reads
// the marker and the objects at one revision, but it is not the key of an object. Its value is the
// JSON of a Marker.
func MarkerKey(prefix string) string { return Root(prefix) + "_complete" }

// Counts holds the number of objects of each kind, by the name of the kind in keys. Kinds that are
// unknown to this version are kept. A missing kind counts as zero.
type Counts map[Kind]int

// Add adds n to the count of the kind of a key below root. It ignores keys without a kind, such as
// MarkerKey.
func (c Counts) Add(root, key string, n int) {
	rest, ok := strings.CutPrefix(key, root)
	kind, name, has := strings.Cut(rest, "/")
	if ok && has && name != "" {
		c[Kind(kind)] += n
	}
}

// CountsOf counts the entries below root by kind.
func CountsOf(root string, entries []Entry) Counts {
	c := Counts{}
	for _, e := range entries {
		if e.Value != nil {
			c.Add(root, e.Key, 1)
		}
	}
	return c
}

// Total returns the number of all objects.
func (c Counts) Total() (n int) {
	for _, of := range c {
		n += of
	}
	return n
}

// Lacks returns the first kind, in order of names, with fewer objects in c than in least; it
// returns "" if there is none.
func (c Counts) Lacks(least Counts) Kind {
	var lacks Kind
	for kind, n := range least {
		if c[kind] < n && (lacks == "" || kind < lacks) {
			lacks = kind
		}
	}
	return lacks
}

// Vanished reports whether c has no objects, or no namespaces, where before had some. No cluster is
// without namespaces.
func (c Counts) Vanished(before Counts) bool {
	return before.Total() > 0 && c.Total() == 0 || before[KindNamespace] > 0 && c[KindNamespace] == 0
}

// Equal reports whether c and d hold the same numbers.
func (c Counts) Equal(d Counts) bool { return c.Lacks(d) == "" && d.Lacks(c) == "" }

// Clone returns a copy; it is never nil.
func (c Counts) Clone() Counts {
	out := make(Counts, len(c))
	maps.Copy(out, c)
	return out
}

// Marker states that the store holds the complete state of a cluster. The active reflector writes
// it after the first complete comparison of the store with the source, and keeps it up to date.
type Marker struct {
	// Cluster identifies the cluster: the UID of its namespace kube-system, or a configured name.
	// It is never empty.
	Cluster string `json:"cluster"`
	// Generation grows with each complete comparison of the store with the source that wrote
	// something or began a term. It is at least the time in milliseconds since 1970, so that it
	// grows even if the store was restored from a backup.
	Generation int64 `json:"generation"`
	// Counts are lower bounds of the number of objects in the store, at every revision from that of
	// the marker on. They are exact after some seconds without changes.
	Counts Counts `json:"counts"`
	// Revision is the store revision of the comparison.
	Revision int64 `json:"revision,omitempty"`
	// Accepted is the generation that an operator accepted although it contradicts what was known
	// before (another cluster, older objects, or none). It is 0 if no operator did.
	Accepted int64 `json:"accepted,omitempty"`
	// Level is the level that a reader must be able to enforce, see the constant Level.
	Level int `json:"level,omitempty"`
	// Writer names the program that wrote the marker, and its version, for users.
	Writer string `json:"writer,omitempty"`
}

// Means reports whether an operator accepted the contents of the marker after generation since.
func (m *Marker) Means(since int64) bool { return m.Accepted > 0 && m.Accepted >= since }

// ErrNoMarker is the error for a missing completeness marker.
var ErrNoMarker = errors.New("the completeness marker is missing")

// EncodeMarker returns the value to store at MarkerKey.
func EncodeMarker(m *Marker) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the completeness marker: %w", err)
	}
	return b, nil
}

// DecodeMarker decodes the value of MarkerKey; it returns ErrNoMarker for nil. It ignores unknown
// fields: a newer version may have written them.
func DecodeMarker(value []byte) (*Marker, error) {
	if value == nil {
		return nil, ErrNoMarker
	}
	m := &Marker{}
	if err := json.Unmarshal(value, m); err != nil {
		return nil, fmt.Errorf("the completeness marker cannot be read: %w", err)
	}
	switch {
	case len(m.Cluster) == 0 || len(m.Cluster) > MaxName:
		return nil, fmt.Errorf("the completeness marker has an invalid cluster: want 1 to %d bytes, got %d", MaxName, len(m.Cluster))
	case m.Level < 0:
		return nil, fmt.Errorf("the completeness marker has an invalid level: want 0 or more, got %d", m.Level)
	case m.Generation <= 0:
		return nil, fmt.Errorf("the completeness marker has an invalid generation: want a positive number, got %d", m.Generation)
	}
	return m, nil
}

// NextGeneration returns the generation that follows after, at the time now in milliseconds since
// 1970.
func NextGeneration(after, now int64) int64 { return max(after+1, now) }

// FindMarker returns the value of the marker among entries, or nil if there is none.
func FindMarker(prefix string, entries []Entry) []byte {
	key := MarkerKey(prefix)
	for _, e := range entries {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}
