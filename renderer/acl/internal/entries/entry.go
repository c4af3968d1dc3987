package entries

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Verdict is the action of an entry, numbered as in VPP.
type Verdict uint8

// The verdicts.
const (
	Deny    Verdict = iota
	Permit          // without creating a session
	Reflect         // and create a session, so that replies pass
)

// Ports is an inclusive range of ports, or of ICMP types or codes.
type Ports struct{ First, Last uint16 }

// AnyPorts contains all ports.
var AnyPorts = Ports{0, 65535}

// Entry is one rule of a VPP ACL. Both prefixes have the same family. It is comparable.
type Entry struct {
	Src, Dst Net
	Verdict  Verdict
	Protocol api.Protocol
	Flags    uint8 // TCP flags; the mask selects those that are compared
	Mask     uint8
	SrcPort  Ports // for ICMP, the type
	DstPort  Ports // for ICMP, the code
}

// Digest identifies the content of an ACL.
type Digest [16]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// DigestOf returns the digest of entries.
func DigestOf(entries []Entry) Digest {
	h := sha256.New()
	buf := make([]byte, 0, min(len(entries)*encodedBytes, 64*encodedBytes))
	for i := range entries {
		if buf = entries[i].append(buf); len(buf) > cap(buf)-encodedBytes {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	h.Write(buf)
	var d Digest
	copy(d[:], h.Sum(buf[:0]))
	return d
}

// encodedBytes is the size of an encoded entry.
const encodedBytes = 48

// append appends a canonical encoding of the entry.
func (e *Entry) append(b []byte) []byte {
	b = append(b, byte(e.Verdict), byte(e.Protocol), e.Flags, e.Mask)
	for _, n := range [2]*Net{&e.Src, &e.Dst} {
		b = append(append(b, byte(n.Bits()), byte(n.bitLen())), n.addr[:]...)
	}
	for _, p := range [2]Ports{e.SrcPort, e.DstPort} {
		b = binary.BigEndian.AppendUint16(b, p.First)
		b = binary.BigEndian.AppendUint16(b, p.Last)
	}
	return b
}

// All addresses, by family.
var (
	AnyIPv4  = NetOf(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	anyIPv6  = NetOf(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	Families = [2]Net{AnyIPv4, anyIPv6}
)

// AnyOf returns the prefix of all addresses in the family of an address.
func AnyOf(a netip.Addr) Net {
	if a.Is6() {
		return anyIPv6
	}
	return AnyIPv4
}

// Contains reports whether p contains all ports of o.
func (p Ports) Contains(o Ports) bool { return p.First <= o.First && o.Last <= p.Last }

// MatchesAll reports whether an entry matches every packet of its family.
func (e *Entry) MatchesAll() bool {
	return e.Src.Bits() == 0 && e.Dst.Bits() == 0 && e.Protocol == api.AnyProtocol && e.Mask == 0 && e.SrcPort == AnyPorts && e.DstPort == AnyPorts
}
