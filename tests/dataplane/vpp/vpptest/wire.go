package vpptest

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

// Outcome is what became of packets: the interface that each left through, by mark,
// and how many ACLs or the plugin denied, or had no place for in the table of sessions.
type Outcome struct {
	Left   map[uint32]string // tags
	Denied int
}

// Send sends packets, each from the interface that its source is routed to, else
// from the uplink, and waits until VPP has processed them. It fails the test unless
// all of them left VPP or were denied by an ACL or by the plugin.
func (p *Network) Send(packets []Packet) Outcome {
	p.TB.Helper()
	out := p.Inject(packets)
	if len(out.Left)+out.Denied != len(packets) {
		p.TB.Fatalf("%d packets: %d left and %d were denied by acls; vpp counted\n%s", len(packets), len(out.Left), out.Denied, p.CLI("show errors"))
	}
	return out
}

// Inject sends packets and ignores what happens to them.
func (p *Network) Inject(packets []Packet) Outcome {
	p.TB.Helper()
	dir, err := os.MkdirTemp(p.dir, "packets")
	if err != nil {
		p.TB.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			p.TB.Fatal(err)
		}
	}()
	p.Sent += len(packets)
	p.CLI("clear errors")
	for _, l := range p.Links {
		p.Do("packet-generator capture %s pcap %s", l.Name, filepath.Join(dir, l.Name+".out"))
	}
	type source struct {
		name, node string
	}
	streams := map[source][][]byte{}
	for _, k := range packets {
		s := source{p.At(k.Src).Name, k.input()}
		streams[s] = append(streams[s], k.Frame())
	}
	for s, list := range streams {
		file := filepath.Join(dir, s.name+"-"+s.node+".in")
		if err := os.WriteFile(file, Capture(list), 0o600); err != nil {
			p.TB.Fatal(err)
		}
		p.Do("packet-generator new { name %[1]s-%[2]s pcap %[3]s interface %[1]s node %[2]s %[4]s }", s.name, s.node, file, p.Worker)
	}
	p.Do("packet-generator enable-stream")
	Eventually(p.TB, "the packets to be sent", func() bool { return p.Generated() == len(packets) })
	for s := range streams {
		p.Do("packet-generator delete %s-%s", s.name, s.node)
	}
	out := p.arrived(dir)
	out.Denied = p.counted("ACL deny packets") + p.counted("too many sessions to add new") + p.counted(" sluice-")
	return out
}

// At returns the interface of an address.
func (p *Network) At(a netip.Addr) Link {
	if tag, ok := p.Routes[a]; ok {
		return p.Links[tag]
	}
	return p.Links[acl.UplinkTag]
}

// Generated returns how many packets the streams have sent that are done.
func (p *Network) Generated() (n int) {
	p.TB.Helper()
	for line := range strings.Lines(p.CLI("show packet-generator")) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "No" {
			count, err := strconv.Atoi(f[2])
			if err != nil {
				p.TB.Fatalf("a stream says %q", line)
			}
			n += count
		}
	}
	return n
}

// arrived ends the captures and reads them.
func (p *Network) arrived(dir string) Outcome {
	p.TB.Helper()
	out := Outcome{Left: map[uint32]string{}}
	for _, tag := range slices.Sorted(maps.Keys(p.Links)) {
		l := p.Links[tag]
		p.Do("packet-generator capture %s disable", l.Name)
		b, err := os.ReadFile(filepath.Join(dir, l.Name+".out"))
		if err != nil {
			if os.IsNotExist(err) {
				continue // nothing left through it
			}
			p.TB.Fatal(err)
		}
		for _, raw := range captured(p.TB, b) {
			src, _, mark, ok := marked(raw)
			if !ok || src.IsLinkLocalUnicast() || src.IsUnspecified() || fmt.Sprint(src) == Gateway6 {
				continue // VPP's own
			}
			if before, twice := out.Left[mark]; twice {
				p.TB.Fatalf("packet %d left through %s and %s", mark, before, tag)
			}
			out.Left[mark] = tag
		}
	}
	return out
}

// counted sums a counter over VPP's nodes.
func (p *Network) counted(reason string) (n int) {
	p.TB.Helper()
	for line := range strings.Lines(p.CLI("show errors")) {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(line, reason) {
			count, err := strconv.Atoi(f[0])
			if err != nil {
				p.TB.Fatalf("a counter says %q", line)
			}
			n += count
		}
	}
	return n
}
