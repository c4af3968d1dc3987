package compile

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Words returns the i-th word of a policy map.
type Words func(i uint32) uint32

// Reader finds verdicts in a policy map by the algorithm of the kernel program.
type Reader struct{ Word Words }

// Verdict returns the verdict of an endpoint's list for one direction about the first packet of a
// flow in that direction. The record is that of the endpoint. An endpoint without a list permits.
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

// find returns the index of the last start that is at most the key.
func (r Reader) find(starts, count uint32, key uint16) (pos uint32) {
	for step := count / 2; step > 0; step /= 2 {
		i := pos + step
		if uint16(r.Word(starts+i/2)>>(16*(i%2))) <= key {
			pos = i
		}
	}
	return pos
}

// Has reports whether an endpoint has an address.
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
