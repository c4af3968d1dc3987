package vpp

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/renderer/acl"
)

// outcome is what became of packets: the interface that each left through, by mark,
// and how many ACLs denied.
type outcome struct {
	left   map[uint32]string // tags
	denied int
}

// send sends packets, each from the interface that its source is routed to, else
// from the uplink, and waits until VPP has processed them. It fails the test unless
// all of them left VPP or were denied by an ACL.
func (p *plumbing) send(packets []packet) outcome {
	p.tb.Helper()
	out := p.inject(packets)
	if len(out.left)+out.denied != len(packets) {
		p.tb.Fatalf("%d packets: %d left and %d were denied by acls; vpp counted\n%s", len(packets), len(out.left), out.denied, p.cli("show errors"))
	}
	return out
}

// inject sends packets whatever becomes of them.
func (p *plumbing) inject(packets []packet) outcome {
	p.tb.Helper()
	dir := p.tb.TempDir()
	p.cli("clear errors")
	for _, l := range p.links {
		p.do("packet-generator capture %s pcap %s", l.name, filepath.Join(dir, l.name+".out"))
	}
	type source struct {
		name, node string
	}
	streams := map[source][][]byte{}
	for _, k := range packets {
		s := source{p.at(k.Src).name, "ip4-input"}
		if !k.Src.Is4() {
			s.node = "ip6-input"
		}
		streams[s] = append(streams[s], k.bytes())
	}
	for s, list := range streams {
		file := filepath.Join(dir, s.name+"-"+s.node+".in")
		if err := os.WriteFile(file, capture(list), 0o600); err != nil {
			p.tb.Fatal(err)
		}
		p.do("packet-generator new { name %[1]s-%[2]s pcap %[3]s interface %[1]s node %[2]s }", s.name, s.node, file)
	}
	p.do("packet-generator enable-stream")
	eventually(p.tb, "the packets to be sent", func() bool { return p.sent() == len(packets) })
	for s := range streams {
		p.do("packet-generator delete %s-%s", s.name, s.node)
	}
	out := p.arrived(dir)
	out.denied = p.counted("ACL deny packets")
	return out
}

// at returns the interface of an address.
func (p *plumbing) at(a netip.Addr) link {
	if tag, ok := p.routes[a]; ok {
		return p.links[tag]
	}
	return p.links[acl.UplinkTag]
}

// sent returns how many packets the streams have sent that are done.
func (p *plumbing) sent() (n int) {
	p.tb.Helper()
	for line := range strings.Lines(p.cli("show packet-generator")) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "No" {
			count, err := strconv.Atoi(f[2])
			if err != nil {
				p.tb.Fatalf("a stream says %q", line)
			}
			n += count
		}
	}
	return n
}

// arrived ends the captures and reads them.
func (p *plumbing) arrived(dir string) outcome {
	p.tb.Helper()
	out := outcome{left: map[uint32]string{}}
	for _, tag := range slices.Sorted(maps.Keys(p.links)) {
		l := p.links[tag]
		p.do("packet-generator capture %s disable", l.name)
		b, err := os.ReadFile(filepath.Join(dir, l.name+".out"))
		if err != nil {
			if os.IsNotExist(err) {
				continue // nothing left through it
			}
			p.tb.Fatal(err)
		}
		for _, raw := range captured(p.tb, b) {
			src, dst, mark, ok := marked(raw)
			if !ok || src.IsLinkLocalUnicast() || dst.IsMulticast() || fmt.Sprint(src) == gateway6 {
				continue // VPP's own
			}
			if before, twice := out.left[mark]; twice {
				p.tb.Fatalf("packet %d left through %s and %s", mark, before, tag)
			}
			out.left[mark] = tag
		}
	}
	return out
}

// counted sums a counter over VPP's nodes.
func (p *plumbing) counted(reason string) (n int) {
	p.tb.Helper()
	for line := range strings.Lines(p.cli("show errors")) {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(line, reason) {
			count, err := strconv.Atoi(f[0])
			if err != nil {
				p.tb.Fatalf("a counter says %q", line)
			}
			n += count
		}
	}
	return n
}
