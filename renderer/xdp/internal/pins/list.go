package pins

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// Pinned describes a file in a folder for pins.
type Pinned struct {
	Name string `json:"name"` // below the folder
	// Map has what the kernel says of a map; it is nil for links and programs.
	Map *MapInfo `json:"map,omitempty"`
}

// MapInfo describes a map in the kernel.
type MapInfo struct {
	Type       string `json:"type"`
	KeySize    uint32 `json:"keySize"`   // bytes
	ValueSize  uint32 `json:"valueSize"` // bytes
	MaxEntries uint32 `json:"maxEntries"`
	// Values are those of an array with few small values, as the kernel has them.
	Values map[uint32][]byte `json:"values,omitempty"`
}

// Limits of a list.
const (
	maxPinned = 10_000
	maxValues = 4096 // bytes of an array that is listed
)

// List describes what is pinned. It takes no lock and changes nothing, so that it may run while
// another process owns the folder. It returns ErrNone for a folder that does not exist.
func List(path string) (out []Pinned, err error) {
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return nil
		case len(out) == maxPinned:
			return fs.SkipAll
		}
		out = append(out, Pinned{Name: name, Map: describe(filepath.Join(path, name))})
		return nil
	})
	return out, err
}

// describe returns nil for what is no map, or cannot be opened.
func describe(path string) *MapInfo {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil
	}
	defer func() { _ = m.Close() }() // it was only read
	i := &MapInfo{Type: m.Type().String(), KeySize: m.KeySize(), ValueSize: m.ValueSize(), MaxEntries: m.MaxEntries()}
	if m.Type() != ebpf.Array || uint64(m.MaxEntries())*uint64(m.ValueSize()) > maxValues {
		return i
	}
	i.Values = map[uint32][]byte{}
	for k := range m.MaxEntries() {
		if v, err := m.LookupBytes(k); err == nil {
			i.Values[k] = v
		}
	}
	return i
}
