package entries

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Verdict is what an entry does, in VPP's numbers.
type Verdict uint8

// The verdicts.
const (
	Deny    Verdict = iota
	Permit          // and no session
	Reflect         // and a session, so that replies pass
)

// Ports is an inclusive range of ports, or of ICMP types or codes.
type Ports struct{ First, Last uint16 }

// AnyPorts are all ports.
var AnyPorts = Ports{0, 65535}

// Entry is one rule of a VPP ACL. Both prefixes are of one family. It is comparable.
type Entry struct {
	Verdict  Verdict
	Src, Dst netip.Prefix
	Protocol api.Protocol
	SrcPort  Ports // the type, for ICMP
	DstPort  Ports // the code, for ICMP
	Flags    uint8 // TCP flags of which mask says which count
	Mask     uint8
}

// Digest identifies the content of an ACL.
type Digest [16]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// DigestOf returns the digest of entries.
func DigestOf(entries []Entry) Digest {
	h := sha256.New()
	buf := make([]byte, 0, 64)
	for i := range entries {
		buf = entries[i].append(buf[:0])
		h.Write(buf)
	}
	var d Digest
	copy(d[:], h.Sum(buf[:0]))
	return d
}

// append writes the entry in a canonical form.
func (e *Entry) append(b []byte) []byte {
	b = append(b, byte(e.Verdict), byte(e.Protocol), e.Flags, e.Mask)
	for _, p := range [2]netip.Prefix{e.Src, e.Dst} {
		a := p.Addr().As16()
		b = append(append(b, byte(p.Bits()), byte(p.Addr().BitLen())), a[:]...)
	}
	for _, p := range [2]Ports{e.SrcPort, e.DstPort} {
		b = binary.BigEndian.AppendUint16(b, p.First)
		b = binary.BigEndian.AppendUint16(b, p.Last)
	}
	return b
}

// All addresses, by family.
var (
	AnyIPv4  = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	anyIPv6  = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	Families = [2]netip.Prefix{AnyIPv4, anyIPv6}
)

// AnyOf returns all addresses of the family of one.
func AnyOf(a netip.Addr) netip.Prefix {
	if a.Is6() {
		return anyIPv6
	}
	return AnyIPv4
}

// Contains reports whether every port of o is one of p.
func (p Ports) Contains(o Ports) bool { return p.First <= o.First && o.Last <= p.Last }
