package acl

import (
	"cmp"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/memory"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// Shrink lowers the limits, so that tables with a few entries are treated as large. It must be called
// before the first commit.
func (r *Renderer) Shrink() {
	r.bounds = bounds{Sizes: layout.Sizes{Whole: 2, Recent: 2, Base: 3, Most: 4}, guard: expand.GuardSizes{Entries: 2, Peers: 3, Blocks: 2}}
}

// Bytes returns the forecast memory use of entries.
func Bytes(n int) uint64 { return memory.Bytes(n) }

// Dump is the known content of ours in the vswitch, for diagnosis.
type Dump struct {
	ACLs       []DumpACL       `json:"acls,omitempty"` // ours, by index
	Interfaces []DumpInterface `json:"interfaces,omitempty"`
}

// DumpACL is one of our ACLs.
type DumpACL struct {
	Index   uint32 `json:"index"`
	Tag     string `json:"tag"`
	Entries int    `json:"entries"`
}

// DumpInterface is an interface with ACLs.
type DumpInterface struct {
	SwIfIndex uint32   `json:"swIfIndex"`
	Name      string   `json:"name"`
	Tag       string   `json:"tag,omitempty"`
	Input     []uint32 `json:"input,omitempty"`
	Output    []uint32 `json:"output,omitempty"`
}

// Dump returns the known content of the vswitch, or nothing between an error and the next Apply.
// It makes no calls. Unlike State, it waits for a running Apply.
func (r *Renderer) Dump() (out Dump) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mirror != nil {
		dump(r.mirror, &out)
	}
	return out
}

func dump(m *mirror.Mirror, out *Dump) {
	for _, h := range m.ACLs {
		out.ACLs = append(out.ACLs, DumpACL{Index: h.Index, Tag: h.Tag, Entries: h.Piece.Count})
	}
	slices.SortFunc(out.ACLs, func(a, b DumpACL) int { return cmp.Compare(a.Index, b.Index) })
	for _, n := range m.Interfaces {
		if len(n.Bound.In)+len(n.Bound.Out) > 0 {
			out.Interfaces = append(out.Interfaces, DumpInterface{SwIfIndex: n.Index, Name: n.Name, Tag: n.Tag,
				Input: slices.Clone(n.Bound.In), Output: slices.Clone(n.Bound.Out)})
		}
	}
}
