package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// packets are those that are not the first of a flow.
var packets = map[string]func(p *vswitch.Packet){
	"icmp-error": func(p *vswitch.Packet) { // of the kind that path MTU discovery needs
		p.Protocol, p.ICMPType, p.ICMPCode = api.ICMP, 3, 4
		if p.Dst.Is6() {
			p.Protocol, p.ICMPType, p.ICMPCode = api.ICMPv6, 2, 0
		}
	},
	"neighbour-solicitation":  func(p *vswitch.Packet) { p.Protocol, p.ICMPType = api.ICMPv6, 135 },
	"neighbour-advertisement": func(p *vswitch.Packet) { p.Protocol, p.ICMPType = api.ICMPv6, 136 },
	"fragment":                func(p *vswitch.Packet) { p.Protocol, p.NonFirstFragment = api.UDP, true },
}

// packet sends packets that are not the first of a flow: "FROM -> TO KIND". Kinds of
// dataplanes that do not take packets are not asked.
func (s sessions) packet(ctx context.Context, c command) (string, error) {
	lines, err := parseLines(c.Input)
	if err != nil {
		return "", err
	}
	f, err := s.subject.wire(ctx)
	if err != nil {
		return "", err
	}
	var out []string
	for _, l := range lines {
		n := len(l.args) - 1
		if n < 0 || packets[l.args[n].Key] == nil {
			return "", fmt.Errorf("%q: want FROM -> TO and a kind of packet", l)
		}
		kind := l.args[n].Key
		l.args[n].Key = "icmp"
		asks, err := s.world.reader().askLine(l)
		if err != nil {
			return "", err
		}
		for _, a := range asks {
			p := vswitch.Packet{Src: a.flow.Src, Dst: a.flow.Dst}
			packets[kind](&p)
			what := fmt.Sprintf("%s -> %s %s: ", a.src, a.dst, kind)
			ok, err := through(f, p, strings.Contains(c.Expected, what+arrives(true)))
			if errors.Is(err, errNoPackets) {
				return c.Expected, nil
			}
			out = append(out, what+arrives(ok))
		}
	}
	return strings.Join(out, "\n"), nil
}

// errNoPackets says that a kind of dataplane does not take packets.
var errNoPackets = errors.New("the stack takes flows only")

// through carries a packet through the stacks of both ends. Of one that they may drop although it
// should arrive right is what it should.
func through(f *harness.Cluster, p vswitch.Packet, right bool) (bool, error) {
	met := ""
	for _, a := range []netip.Addr{p.Src, p.Dst} {
		for _, name := range f.Names() {
			stack := f.Node(name).Backend
			if !stack.Has(a) || name == met {
				continue
			}
			s, ok := stack.(backends.Sender)
			if !ok {
				return false, errNoPackets
			}
			if met = name; !s.Passes(p) {
				strict, ok := stack.(backends.Strict)
				return right && ok && strict.Drops(p), nil
			}
		}
	}
	return true, nil
}
