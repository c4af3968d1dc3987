package xdp

import (
	"math"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// heap is a Plane without a kernel.
type heap struct {
	mark     StateDigest
	force    heapMemory
	next     *heapMemory
	attached map[uint32]bool
}

type heapMemory struct {
	lines []compile.Line
	slots int
	ends  map[uint32]uint32
}

// NewHeap returns a Plane that decides in the heap, by the algorithm of the kernel's program.
// It keeps no state of flows and counts nothing.
func NewHeap() Dataplane {
	return &heap{force: heapMemory{lines: make([]compile.Line, 1), ends: map[uint32]uint32{}}, attached: map[uint32]bool{}}
}

// written is the memory that steps go to.
func (h *heap) written() *heapMemory {
	if h.next != nil {
		return h.next
	}
	return &h.force
}

func (h *heap) StateDigest() StateDigest           { return h.mark }
func (h *heap) SetStateDigest(m StateDigest) error { h.mark = m; return nil }

func (h *heap) Size() (lines, slots int) { return len(h.written().lines), h.written().slots }

// Limits implements Plane.
func (h *heap) Limits() (lines, slots int) { return math.MaxInt, math.MaxInt }

func (h *heap) Prepare(lines, slots int) error {
	h.next = &heapMemory{lines: make([]compile.Line, lines), slots: slots, ends: map[uint32]uint32{}}
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
	if h.written().ends[id] = record; record == 0 {
		delete(h.written().ends, id)
	}
	return nil
}

func (h *heap) Switch() ([]uint64, error) {
	if h.next != nil {
		h.force, h.next = *h.next, nil
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

func (h *heap) Word(i uint32) uint32    { return h.force.lines[i/compile.LineWords][i%compile.LineWords] }
func (h *heap) Record(id uint32) uint32 { return h.force.ends[id] }
func (h *heap) Close() error            { return nil }

func (h *heap) Hits(_, count uint32) ([]uint64, error) {
	return make([]uint64, min(count, uint32(h.force.slots))), nil
}
