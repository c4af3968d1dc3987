package acl

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// What entries take from the main heap of VPP 25.10, in bytes. VPP does not give a
// message back that says no: it aborts when the heap is used up. So what does not
// fit must never be sent.
const (
	appliedBytes = 220 // an entry, on each interface that has its ACL
	heldBytes    = 160 // an entry as such: as it was sent, and prepared for look-ups
)

// reserve is the part of the heap that ACLs must leave: for everything else, and for
// the copies that VPP makes while it changes something.
const reserve = 8

// heap is the memory that our ACLs may take altogether, theirs of today included.
type heap struct {
	budget  uint64 // 0 when nothing is known: then everything is tried
	trusted uint64 // as long as less is needed nobody needs to be asked again
	needed  uint64 // what the last commit wanted
}

// usage is what VPP says of its heap, in bytes.
type usage struct{ total, free uint64 }

// askHeap brings up to date how much memory there is. The embedded vswitch has no
// limit; what cannot be understood is none either.
func (r *Renderer) askHeap(ctx context.Context, held uint64) error {
	switch {
	case r.options.Memory > 0:
		r.heap.budget, r.heap.trusted = r.options.Memory, r.options.Memory
		return nil
	case strings.HasPrefix(r.version, embeddedVersion):
		r.heap.budget, r.heap.trusted = 0, ^uint64(0)
		return nil
	}
	text, err := r.link.CLI(ctx, "show memory main-heap")
	var refused govpp.VPPApiError
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, vpp.ErrNoCLI) {
		return fmt.Errorf("ask the vswitch for its memory: %w", err)
	}
	u, ok := parseHeap(text)
	if !ok {
		r.heap.budget, r.heap.trusted = 0, ^uint64(0)
		r.log.Warn("the vswitch does not say how much memory it has: tables are not held against it", "answer", text)
		return nil
	}
	left := u.free - min(u.free, u.total/reserve)
	r.heap.budget, r.heap.trusted = held+left, held+left/2
	return nil
}

// heapLine is how VPP writes the use of a heap; all threads have the same one.
var heapLine = regexp.MustCompile(`total: ([0-9.]+[KMG]?), used: [0-9.]+[KMG]?, free: ([0-9.]+[KMG]?)`)

func parseHeap(text string) (usage, bool) {
	m := heapLine.FindStringSubmatch(text)
	if m == nil {
		return usage{}, false
	}
	total, free := parseSize(m[1]), parseSize(m[2])
	return usage{total, free}, total > 0
}

// parseSize reads a size as VPP writes it; 0 for anything else.
func parseSize(text string) uint64 {
	unit := 1.0
	for suffix, n := range map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
		if s, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = s, n
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 {
		return 0
	}
	return uint64(n * unit)
}
