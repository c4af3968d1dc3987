package xdp

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// heap is a Dataplane without a kernel.
type heap struct {
	digest   StateDigest
	secret   uint64
	inForce  heapMemory
	next     *heapMemory
	attached map[uint32]bool
}

type heapMemory struct {
	lines   []compile.Line
	slots   int
	records map[uint32]uint32
}

// NewHeap returns a Dataplane in the heap that uses the algorithm of the kernel program. It tracks
// no connections and counts no packets.
func NewHeap() Dataplane {
	return &heap{secret: rand.Uint64(), inForce: heapMemory{lines: make([]compile.Line, 1), records: map[uint32]uint32{}}, attached: map[uint32]bool{}}
}

// written returns the policy map that writes go to.
func (h *heap) written() *heapMemory {
	if h.next != nil {
		return h.next
	}
	return &h.inForce
}

func (h *heap) StateDigest() StateDigest           { return h.digest }
func (h *heap) SetStateDigest(m StateDigest) error { h.digest = m; return nil }
func (h *heap) Secret() uint64                     { return h.secret }

func (h *heap) Size() (lines, slots int) { return len(h.written().lines), h.written().slots }

// Limits implements Dataplane.
func (h *heap) Limits() (lines, slots int) { return math.MaxInt, math.MaxInt }

func (h *heap) Prepare(lines, slots int) error {
	h.next = &heapMemory{lines: make([]compile.Line, lines), slots: slots, records: map[uint32]uint32{}}
	return nil
}

func (h *heap) Write(line uint32, content []compile.Line) error {
	copy(h.written().lines[line:], content)
	return nil
}

func (h *heap) Store(word, value uint32) error {
	h.written().lines[word/compile.LineWords][word%compile.LineWords] = value
	return nil
}

func (h *heap) Flip(id, record uint32) error {
	if h.written().records[id] = record; record == 0 {
		delete(h.written().records, id)
	}
	return nil
}

func (h *heap) Switch() ([]uint64, error) {
	if h.next != nil {
		h.inForce, h.next = *h.next, nil
	}
	return nil, nil
}

func (h *heap) Grace() error { return nil }

func (h *heap) Name(compile.Endpoint) error     { return nil }
func (h *heap) Attach(e compile.Endpoint) error { h.attached[e.ID] = true; return nil }
func (h *heap) Detach(id uint32) error          { delete(h.attached, id); return nil }

func (h *heap) Attached() (ids []uint32, err error) {
	for id := range h.attached {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

func (h *heap) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	record := h.Record(id)
	if record == 0 || !h.attached[id] {
		return true, nil
	}
	return compile.Reader{Word: h.Word}.Verdict(record, dir, f)&compile.Allow != 0, nil
}

func (h *heap) Word(i uint32) uint32 {
	return h.inForce.lines[i/compile.LineWords][i%compile.LineWords]
}
func (h *heap) Record(id uint32) uint32 { return h.inForce.records[id] }
func (h *heap) Close() error            { return nil }

func (h *heap) Hits(_, count uint32) ([]uint64, error) {
	return make([]uint64, min(count, uint32(h.inForce.slots))), nil
}
