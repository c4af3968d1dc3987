package compile

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Words returns a word of memory.
type Words func(i uint32) uint32

// Reader finds verdicts in memory in the way the program in the kernel does.
type Reader struct{ Word Words }

// Verdict returns what the list of an endpoint for one direction says about the first
// packet of a flow in that direction. The record is that of an endpoint; one without a
// list permits.
func (r Reader) Verdict(record uint32, dir Direction, f api.Flow) uint32 {
	w := record * LineWords
	flags := r.Word(w + RecordFlags)
	if flags&(FlagToPod<<dir) == 0 {
		return Allow
	}
	remote := f.Src
	if dir == FromPod {
		remote = f.Dst
	}
	c := r.Class(record, remote)
	if c >= r.Word(w+RecordClasses+uint32(dir)) {
		return 0
	}
	rows := r.Word(w + RecordPage + uint32(dir))
	if c >= pageClasses {
		rows = r.Word(r.Word(w+RecordTable+uint32(dir))*LineWords + c/pageClasses)
	}
	at := r.Word(rows*LineWords + c%pageClasses)
	place := placeOf(f.Protocol)
	key, source := f.DstPort, f.SrcPort
	if place == placeOther {
		key, source = uint16(f.Protocol), 0
	}
	cell := r.Word(at*LineWords + uint32(place))
	if at != 0 && flags&(FlagPortsTo<<dir) != 0 {
		cell = r.Word(r.resolve(cell, source))
	}
	return r.resolve(cell, key)
}

// Class returns the class of an address for an endpoint.
func (r Reader) Class(record uint32, a netip.Addr) uint32 {
	w := record * LineWords
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		cell := r.Word(r.Word(w+RecordRoot4)*LineWords + uint32(binary.BigEndian.Uint16(b[:])))
		return r.resolve(cell, binary.BigEndian.Uint16(b[2:]))
	}
	b := a.As16()
	node := r.Word(r.Word(w + RecordRoot6))
	for range digits6 {
		n := node * LineWords
		for i := range uint32(4) {
			if (be32(b[4*i:])^r.Word(n+nodeValue+i))&r.Word(n+nodeMaskW+i) != 0 {
				return r.Word(n + nodeMiss)
			}
		}
		digit := r.Word(n + nodeDigit)
		value := r.resolve(r.Word(n+nodeCell), binary.BigEndian.Uint16(b[2*digit:]))
		if value&nextNode == 0 {
			return value
		}
		node = value &^ nextNode
	}
	return 0
}

// resolve returns the value of a function of 16 bits.
func (r Reader) resolve(cell uint32, key uint16) uint32 {
	if cell&kindMask == kindNode {
		cell = r.Word(cell&payloadMask*LineWords + uint32(key>>8))
		key &= 0xff
		if cell&kindMask == kindNode {
			cell = r.Word(cell&payloadMask*LineWords + uint32(key))
		}
	}
	line := cell & payloadMask * LineWords
	switch cell & kindMask {
	case kindSmall:
		return r.smallValue(line, r.find(line+smallStart, smallRuns, key))
	case kindBig:
		return r.Word(line + LineWords + r.find(line, bigRuns, key))
	}
	return cell
}

// smallValue returns the value of the i-th run of a small list.
func (r Reader) smallValue(line, i uint32) (value uint32) {
	for j := range i + 1 {
		value ^= r.Word(line + smallValue + j)
	}
	return value
}

// find returns the last of some starts that is not behind the key.
func (r Reader) find(starts, count uint32, key uint16) (pos uint32) {
	for step := count / 2; step > 0; step /= 2 {
		i := pos + step
		if uint16(r.Word(starts+i/2)>>(16*(i%2))) <= key {
			pos = i
		}
	}
	return pos
}

// eachClass marks the classes that a cell of addresses leads to.
func (r Reader) eachClass(cell uint32, marked []bool) {
	line := cell & payloadMask * LineWords
	switch cell & kindMask {
	case kindSmall:
		for i := range uint32(smallRuns) {
			r.eachClass(r.smallValue(line, i), marked)
		}
	case kindBig:
		r.eachValue(line+LineWords, bigRuns, marked)
	case kindNode:
		r.eachValue(line, 256, marked)
	default:
		if cell&nextNode == 0 {
			marked[cell] = true
			return
		}
		node := cell &^ nextNode * LineWords
		marked[r.Word(node+nodeMiss)] = true
		r.eachClass(r.Word(node+nodeCell), marked)
	}
}

func (r Reader) eachValue(first, count uint32, marked []bool) {
	for i := range count {
		r.eachClass(r.Word(first+i), marked)
	}
}

// Has reports whether an address is one of an endpoint.
func (r Reader) Has(record uint32, a netip.Addr) bool {
	w := record * LineWords
	if a.Is4() {
		b := a.As4()
		for i := range r.Word(w + RecordCount4) {
			if r.Word(w+recordAddr4*LineWords+i) == binary.BigEndian.Uint32(b[:]) {
				return true
			}
		}
		return false
	}
	b := a.As16()
	for i := range r.Word(w + RecordCount6) {
		same := true
		for j := range uint32(4) {
			same = same && r.Word(w+recordAddr6*LineWords+4*i+j) == binary.BigEndian.Uint32(b[4*j:])
		}
		if same {
			return true
		}
	}
	return false
}
