package vswitch

import (
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/codec"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify/classifytest"
)

// FuzzWireRules checks that rules of a message are rejected, or are masked, of one family and
// unchanged in a dump, and that the classifier decides like a scan of the rules.
func FuzzWireRules(f *testing.F) {
	for _, rules := range [][]Rule{
		both(RulePermitReflect), both(RuleDeny),
		{rule(RuleDeny, anyV4, anyV4, 6, Range{First: 1, Last: 2}, Range{First: 3, Last: 4}), rule(RulePermit, "10.1.0.0/16", "10.2.0.0/16", 17, Range{First: 0, Last: 65535}, Range{First: 53, Last: 53})},
	} {
		b, err := codec.EncodeMsg(&acl.ACLAddReplace{ACLIndex: newACLIndex, Tag: "t", R: wireRules(rules...)}, 1)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint16(3), uint16(4))
	}
	table := New(Options{}).messages
	known := table.byID[table.ids[new(acl.ACLAddReplace).GetMessageName()]]
	f.Fuzz(func(t *testing.T, b []byte, sport, dport uint16) {
		// The codec allocates whatever a message claims, so the size is checked first.
		m := &acl.ACLAddReplace{}
		if known.check(b) != nil || codec.DecodeMsg(b, m) != nil || len(m.R) > 64 {
			return
		}
		rules, rv := rulesFromWire(nil, m.R, false)
		if rv != 0 {
			return
		}
		for i, r := range rules {
			if r.Src != r.Src.Masked() || r.Dst != r.Dst.Masked() || r.Src.Addr().Is4() != r.Dst.Addr().Is4() || r.Action > RulePermitReflect {
				t.Fatalf("rule %d is %s", i, r)
			}
		}
		again, rv := rulesFromWire(nil, rulesToWire(rules), false)
		if rv != 0 || len(again) != len(rules) {
			t.Fatalf("the dump of %v is refused: %d", rules, rv)
		}
		for i := range rules {
			if again[i] != rules[i] {
				t.Errorf("rule %s becomes %s", rules[i], again[i])
			}
		}
		c := classify.New(rules)
		for _, p := range []Packet{toPod(api.TCP, sport, dport), toPod(api.UDP, sport, dport), v6(toPod(api.SCTP, sport, dport))} {
			x, ok := p.tuple()
			if !ok {
				t.Fatal("a packet without addresses")
			}
			if got, want := c.Lookup(&x), classifytest.Scan(rules, &x); got != want {
				t.Errorf("%v: rule %d decides, want %d of %v", p, got, want, rules)
			}
		}
	})
}

// FuzzCLI checks that any line gets an answer of its own, and that the switch stays consistent.
func FuzzCLI(f *testing.F) {
	for _, c := range New(Options{}).cli.commands {
		f.Add(c.words)
		f.Add(c.words + " index 0")
	}
	f.Add("set acl-plugin session timeout udp idle 4294967295")
	f.Add("show\x00version")
	f.Fuzz(func(t *testing.T, line string) {
		sw := New(Options{})
		sw.AddInterface("pod", "")
		text, rv := sw.cli.run(line)
		if rv != 0 && !strings.Contains(text, "unknown input") {
			t.Errorf("%q fails with %q", line, text)
		}
		checkWhole(t, sw)
		sw.Inject(1, toPod(api.TCP, 1, 2))
	})
}
