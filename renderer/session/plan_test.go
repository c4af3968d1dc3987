package session

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
)

// The universe of the property tests is small and dense: prefixes nest and share boundaries, and
// ports coincide.
var (
	testPrefixes = [2][]netip.Prefix{
		prefixes("10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/24", "10.0.0.0/32", "10.0.0.0/31", "10.0.0.1/32", "10.0.1.0/24", "10.0.0.128/25",
			"10.128.0.0/9", "10.255.255.255/32", "0.0.0.0/0", "0.0.0.0/5", "0.0.0.0/1", "128.0.0.0/1", "255.0.0.0/8"),
		prefixes("fd00::/8", "fd00::/16", "fd00::/127", "fd00::/128", "fd00::1/128", "fd80::/9", "::/0", "::/3", "8000::/1", "ff00::/8"),
	}
	testAddrs = [2][]netip.Addr{
		addrs("10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.129", "10.0.1.1", "10.0.2.0", "10.1.0.0", "10.128.0.0", "10.255.255.255", "11.0.0.1",
			"1.2.3.4", "127.0.0.1", "128.0.0.0", "255.1.1.1", "0.0.0.1"),
		addrs("fd00::", "fd00::1", "fd00::2", "fd00:1::", "fd80::", "fe00::1", "1::", "::1", "8000::", "ff00::1", "2001::1"),
	}
	testPorts = []uint16{80, 81, 443, 65535}
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// drawLines generates an ordered table.
func drawLines(t *rapid.T, family int) []line {
	var out []line
	for range rapid.IntRange(0, 6).Draw(t, "lines") {
		l := line{action: drawAction(t), others: true}
		l.peers = rapid.SliceOfNDistinct(rapid.SampledFrom(testPrefixes[family]), 1, 3, rapid.ID).Draw(t, "peers")
		if rapid.Bool().Draw(t, "names ports") {
			l.others = rapid.IntRange(0, 3).Draw(t, "all but these when 0") == 0
			l.ports = rapid.SliceOfNDistinct(rapid.SampledFrom(testPorts[:3]), 1, 2, rapid.ID).Draw(t, "ports")
		}
		out = append(out, l)
	}
	return append(out, line{peers: []netip.Prefix{tops[family].peer}, others: true, action: drawAction(t)})
}

func drawAction(t *rapid.T) api.Action {
	return rapid.SampledFrom([]api.Action{api.Deny, api.Permit}).Draw(t, "action")
}

// first returns the action of the first line that matches.
func first(lines []line, peer netip.Addr, port uint16) api.Action {
	for _, l := range lines {
		if slices.Contains(l.ports, port) != l.others &&
			slices.ContainsFunc(l.peers, func(p netip.Prefix) bool { return p.Contains(peer) }) {
			return l.action
		}
	}
	panic("a table decides everything")
}

// bench is a namespace of a vswitch that applies steps.
type bench struct {
	t         *rapid.T
	sw        *vswitch.Switch
	namespace uint32
	family    int
}

func (b *bench) take(s step) {
	action := vswitch.SessionRuleAllow
	if s.action == api.Deny {
		action = vswitch.SessionRuleDrop
	}
	r := vswitch.SessionRule{Local: true, Namespaces: []uint32{b.namespace}, Protocol: api.TCP, Lcl: tops[b.family].peer,
		Rmt: s.place.peer, RmtPort: s.place.port, Action: action, Tag: fmt.Sprint(s.place, s.action)}
	if !b.sw.ChangeSessionRule(s.add, r) {
		b.t.Fatalf("step %v is refused", s)
	}
}

// among checks that every attempt is decided as in one of the tables.
func (b *bench) among(when string, tables ...[]line) {
	for _, a := range testAddrs[b.family] {
		for _, port := range testPorts {
			got := b.sw.Connect(b.namespace, api.Flow{Src: a, Dst: a, Protocol: api.TCP, DstPort: port}).Action
			if !slices.ContainsFunc(tables, func(l []line) bool { return first(l, a, port) == got }) {
				b.t.Fatalf("%s: %s port %d: %s, which no table says; there are\n%v", when, a, port, got, b.sw.SessionRules())
			}
		}
	}
}

// TestPlanStepsDecideAsBeforeOrAfter goes from one random table to the next in the rule
// tree of VPP, sometimes only part of the way.
func TestPlanStepsDecideAsBeforeOrAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &bench{t: t, sw: vswitch.New(vswitch.Options{Quirks: rapid.Bool().Draw(t, "quirks")}), family: rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "family")}
		b.namespace = b.sw.AddNamespace("pod")
		have := rules{}
		tables := [][]line{{{peers: []netip.Prefix{tops[b.family].peer}, others: true, action: api.Permit}}}
		for range rapid.IntRange(1, 4).Draw(t, "tables") {
			lines := drawLines(t, b.family)
			compiled, ok := compile(lines, b.family, math.MaxInt)
			want := compiled.rules()
			if !ok || len(want) != compiled.count {
				t.Fatalf("there are %d rules, %d are counted; %t", len(want), compiled.count, ok)
			}
			steps, result := plan(have, want, b.family)
			stop := len(steps)
			if rapid.IntRange(0, 2).Draw(t, "stops when 0") == 0 {
				stop = rapid.IntRange(0, len(steps)).Draw(t, "steps")
			}
			tables = append(tables, lines)
			for i, s := range steps[:stop] {
				b.take(s)
				b.among(fmt.Sprintf("after step %d of %v to\n%v\n", i, steps, lines), tables...)
			}
			if have = result; stop < len(steps) {
				have = b.read()
				continue
			}
			tables = tables[len(tables)-1:]
			b.among(fmt.Sprintf("at the end of %v to %v", steps, lines), tables...)
			for _, a := range testAddrs[b.family] {
				for _, port := range testPorts {
					if got, want := result.decide(a, port), first(lines, a, port); got != want {
						t.Fatalf("connections of %s port %d are taken for those that rules %v %s, want %s", a, port, result, got, want)
					}
				}
			}
			again, _ := compile(lines, b.family, math.MaxInt)
			if left, _ := plan(result, again.rules(), b.family); len(left) > 0 {
				t.Fatalf("the same again takes %v", left)
			}
			if got := b.read(); !equal(got, result) {
				t.Fatalf("there are %v, want %v", got, result)
			}
		}
	})
}

// read returns the installed rules.
func (b *bench) read() rules {
	out := rules{}
	for _, r := range b.sw.SessionRules() {
		action := api.Permit
		if r.Action == vswitch.SessionRuleDrop {
			action = api.Deny
		}
		out[place{r.Rmt, r.RmtPort}] = action
	}
	return out
}

func equal(a, b rules) bool {
	if len(a) != len(b) {
		return false
	}
	for at, action := range a {
		if got, ok := b[at]; !ok || got != action {
			return false
		}
	}
	return true
}
