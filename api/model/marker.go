package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// MarkerKey returns the key of the completeness marker. It is below Root, so that one list reads
// the marker and the objects at one revision, and it is no key of an object. Its value is the JSON
// of a Marker.
func MarkerKey(prefix string) string { return Root(prefix) + "_complete" }

// Counts are numbers of objects by kind, as the kind stands in keys. Kinds that this version does
// not know are kept. A kind that is missing has none.
type Counts map[Kind]int

// Add changes the number of the kind of a key below a root by n. A key without a kind, such as
// MarkerKey, counts nowhere.
func (c Counts) Add(root, key string, n int) {
	rest, ok := strings.CutPrefix(key, root)
	kind, name, has := strings.Cut(rest, "/")
	if ok && has && name != "" {
		c[Kind(kind)] += n
	}
}

// CountsOf returns how many objects of each kind are among the entries below a root.
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

// Lacks returns the first kind, in the order of names, of which there are fewer than in least;
// empty when there is none.
func (c Counts) Lacks(least Counts) Kind {
	var lacks Kind
	for kind, n := range least {
		if c[kind] < n && (lacks == "" || kind < lacks) {
			lacks = kind
		}
	}
	return lacks
}

// Vanished reports whether c is nothing where before was something: no object, or no namespace,
// which no cluster is without.
func (c Counts) Vanished(before Counts) bool {
	return before.Total() > 0 && c.Total() == 0 || before[KindNamespace] > 0 && c[KindNamespace] == 0
}

// Equal reports whether both have the same numbers.
func (c Counts) Equal(d Counts) bool { return c.Lacks(d) == "" && d.Lacks(c) == "" }

// Clone returns a copy, which is never nil.
func (c Counts) Clone() Counts {
	out := make(Counts, len(c))
	maps.Copy(out, c)
	return out
}

// Marker says that the store holds the whole state of a cluster. Whoever writes the state writes it
// after the store was compared with the whole of the source for the first time, and keeps it true.
type Marker struct {
	// Cluster is which cluster it is: the UID of its namespace kube-system, or a configured name.
	// It is never empty.
	Cluster string `json:"cluster"`
	// Generation grows with each comparison of the store with the whole of the source that had
	// something to write, or that began a term. It is at least the milliseconds since 1970, so
	// that it grows although the store was set back.
	Generation int64 `json:"generation"`
	// Counts are at least how many objects the store holds, at every revision from that of the
	// marker on. They are exact where nothing changed for some seconds.
	Counts Counts `json:"counts"`
	// Revision is that of the store at which it was compared.
	Revision int64 `json:"revision,omitempty"`
	// Accepted is the generation of which an operator said that it is meant, whatever was known
	// before: another cluster, older objects, or none. It is 0 when nobody did.
	Accepted int64 `json:"accepted,omitempty"`
	// Level is what a reader has to enforce, see the constant Level.
	Level int `json:"level,omitempty"`
	// Writer is the program that wrote the marker, and its version, for people.
	Writer string `json:"writer,omitempty"`
}

// Means reports whether an operator accepted what the marker says since a generation was known.
func (m *Marker) Means(since int64) bool { return m.Accepted > 0 && m.Accepted >= since }

// ErrNoMarker says that there is no completeness marker.
var ErrNoMarker = errors.New("the completeness marker is missing")

// EncodeMarker returns the value of MarkerKey.
func EncodeMarker(m *Marker) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the completeness marker: %w", err)
	}
	return b, nil
}

// DecodeMarker reads the value of MarkerKey, and ErrNoMarker from nil. Fields that it does not know
// are left out: a newer version may have written them.
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

// NextGeneration returns the generation after one, at a time in milliseconds since 1970.
func NextGeneration(after, now int64) int64 { return max(after+1, now) }

// FindMarker returns the value of the marker among entries, nil when it is not there.
func FindMarker(prefix string, entries []Entry) []byte {
	key := MarkerKey(prefix)
	for _, e := range entries {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}
