package vpp

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/api"
)

// Return values.
const (
	duplicateInList = 1
	noSuchEntry     = -6
	noSuchInterface = -2
	invalidValue    = -7
	invalidValue2   = -8
	wrongSource     = -57
	wrongTarget     = -58
	inUseInput      = -142
	inUseOutput     = -143
)

// apiScenarios are about what calls answer and leave behind.
var apiScenarios = []scenario{
	{"an ACL is created, replaced and deleted", func(x *trial) {
		index := x.add(x.rule(permit))
		x.change(index, x.rule(deny), x.rule(permit))
		if d := x.acls()[index]; d == nil || len(d.R) != 2 || d.Count != 2 {
			x.Errorf("dumped as %+v", d)
		}
		_, code := x.put(index+100, "test", x.rule(permit))
		x.code("replace what there is not", code, noSuchEntry)
		x.code("bind what there is not", x.setLists(x.of(true), []uint32{index + 100}, nil), noSuchEntry)
		x.code("bind what there is not, one", x.addDel(true, true, x.of(true), index+100), noSuchEntry)
		x.code("bind to no interface", x.setLists(4711, nil, nil), noSuchInterface)
		x.code("bind to no interface, one", x.addDel(true, true, 4711, index), noSuchInterface)
		x.code("delete", x.del(index), 0)
		x.code("delete again", x.del(index), noSuchEntry)
	}},
	{"an ACL in use is not deleted", func(x *trial) {
		in, out := x.add(x.rule(permit)), x.add(x.rule(permit))
		x.bind(in, out)
		x.code("delete on input", x.del(in), inUseInput)
		x.code("delete on output", x.del(out), inUseOutput)
		x.bindAt(true, []uint32{out}, []uint32{out})
		x.code("delete on both", x.del(out), inUseInput)
		x.code("delete the unbound", x.del(in), 0)
		x.bindAt(true, nil, nil)
		x.code("delete the other", x.del(out), 0)
	}},
	{"ACLs are bound and unbound one by one", func(x *trial) {
		first, second := x.add(x.rule(permit)), x.add(x.rule(deny))
		for _, input := range []bool{true, false} {
			inUse := int32(inUseOutput)
			if input {
				inUse = inUseInput
			}
			x.code("bind", x.addDel(true, input, x.of(true), first), 0)
			x.code("bind the second", x.addDel(true, input, x.of(true), second), 0)
			x.code("bind again", x.addDel(true, input, x.of(true), first), inUse)
			in, out := x.bound(x.of(true))
			if !input {
				in = out
			}
			if !slices.Equal(in, []uint32{first, second}) {
				x.Errorf("bound are %v, want %d and %d", in, first, second)
			}
			x.code("unbind", x.addDel(false, input, x.of(true), first), 0)
			x.code("unbind again", x.addDel(false, input, x.of(true), first), noSuchEntry)
			x.code("unbind the second", x.addDel(false, input, x.of(true), second), 0)
		}
	}},
	{"the last ACL of a list takes the place of one that is taken away", func(x *trial) {
		a, b, c, d := x.add(x.rule(permit)), x.add(x.rule(deny)), x.add(x.rule(permit)), x.add(x.rule(deny))
		for _, input := range []bool{true, false} {
			for _, index := range []uint32{a, b, c, d} {
				x.code("bind", x.addDel(true, input, x.of(true), index), 0)
			}
			x.code("unbind", x.addDel(false, input, x.of(true), b), 0)
			in, out := x.bound(x.of(true))
			if !input {
				in = out
			}
			if want := []uint32{a, d, c}; !slices.Equal(in, want) {
				x.Errorf("bound are %v, want %v", in, want)
			}
		}
	}},
	{"an ACL twice in a list is refused half done", func(x *trial) {
		a, b := x.add(x.rule(permit)), x.add(x.rule(deny))
		x.bind(a, a)
		x.code("twice on input", x.setLists(x.of(true), []uint32{b, b}, []uint32{b}), duplicateInList)
		if in, out := x.bound(x.of(true)); !slices.Equal(in, []uint32{a}) || !slices.Equal(out, []uint32{b}) {
			x.Errorf("bound are %v and %v, want %d and already %d", in, out, a, b)
		}
		x.code("twice on output", x.setLists(x.of(true), []uint32{b}, []uint32{a, a}), duplicateInList)
		if in, out := x.bound(x.of(true)); !slices.Equal(in, []uint32{a}) || !slices.Equal(out, []uint32{b}) {
			x.Errorf("bound are %v and %v, want %d and %d", in, out, a, b)
		}
	}},
	{"the index that was freed last is used first", func(x *trial) {
		var was []uint32
		for range 4 {
			was = append(was, x.add(x.rule(permit)))
		}
		for _, i := range []int{1, 3, 2} {
			x.code("delete", x.del(was[i]), 0)
		}
		if got := []uint32{x.add(x.rule(deny)), x.add(x.rule(deny)), x.add(x.rule(deny))}; !slices.Equal(got, []uint32{was[2], was[3], was[1]}) {
			x.Errorf("indexes %v, want %d, %d, %d", got, was[2], was[3], was[1])
		}
	}},
	{"rules that have no meaning are refused", func(x *trial) {
		long, host := x.rule(permit), "10.1.1.1/24"
		if x.six {
			host = "fd00::1/64"
		}
		hostSrc, hostDst, mixed, ports, codes := long, long, long, long, long
		hostSrc.SrcPrefix, hostDst.DstPrefix = prefix(host), prefix(host)
		mixed.DstPrefix.Address.Af = ip_types.ADDRESS_IP6 - mixed.DstPrefix.Address.Af
		ports.SrcportOrIcmptypeFirst, ports.SrcportOrIcmptypeLast = 2, 1
		codes.DstportOrIcmpcodeFirst, codes.DstportOrIcmpcodeLast = 2, 1
		for _, c := range []struct {
			what string
			rule acl_types.ACLRule
			code int32
		}{{"bits behind the source's prefix", hostSrc, wrongSource}, {"bits behind the destination's prefix", hostDst, wrongTarget},
			{"two families", mixed, wrongSource}, {"source ports", ports, invalidValue2}, {"destination ports", codes, invalidValue2}} {
			_, code := x.put(all, "test", c.rule)
			x.code(c.what, code, c.code)
		}
		if n := len(x.acls()); n > 0 {
			x.Errorf("%d acls were made", n)
		}
	}},
	{"a tag has 63 characters at most", func(x *trial) {
		tag := strings.Repeat("t", 63)
		index, code := x.put(all, tag, x.rule(permit))
		x.code("63", code, 0)
		if got := x.acls()[index].Tag; got != tag {
			x.Errorf("the tag is %q", got)
		}
		_, code = x.put(all, tag+"t", x.rule(permit))
		x.code("64", code, invalidValue)
	}},
	{"a dump returns rules as they were given", func(x *trial) {
		var rules []acl_types.ACLRule
		for i := range uint16(18) {
			r := x.ports(acl_types.ACLAction(i%3), []api.Protocol{api.TCP, api.UDP, api.ICMP, api.ICMPv6, api.SCTP, 0}[i%6], 7*i, 9*i)
			r.SrcportOrIcmptypeFirst, r.TCPFlagsMask, r.TCPFlagsValue = i, uint8(i), uint8(2*i)
			if x.six {
				r.SrcPrefix, r.DstPrefix = prefix("2001:db8::/32"), prefix("fd00::17/128")
			} else {
				r.SrcPrefix, r.DstPrefix = prefix("10.0.0.0/7"), prefix("192.0.2.1/32")
			}
			rules = append(rules, r)
		}
		index := x.add(rules...)
		if d := cmp.Diff(rules, x.acls()[index].R); d != "" {
			x.Error(d)
		}
	}},
	{"an interface can have 255 ACLs", func(x *trial) {
		var list []uint32
		for range 254 {
			list = append(list, x.add())
		}
		list = append(list, x.add(x.rule(permit)))
		x.bindAt(true, nil, list)
		if _, out := x.bound(x.of(true)); !slices.Equal(out, list) {
			x.Errorf("bound are %d, want 255", len(out))
		}
		x.pass("what the last of them permits", x.to(api.TCP, 4000, 80))
	}},
	{"an ACL of 16000 rules is dumped whole", func(x *trial) {
		rules := make([]acl_types.ACLRule, 16000)
		for i := range rules {
			rules[i] = x.ports(permit, api.UDP, uint16(i), uint16(i))
		}
		rules[len(rules)-1] = x.ports(deny, api.TCP, 80, 80)
		index := x.add(rules...)
		if d := cmp.Diff(rules, x.acls()[index].R); d != "" {
			x.Error(d)
		}
	}},
	{"an interface that goes gives its ACLs back", func(x *trial) {
		loop, a := x.loopback(), x.add(x.rule(deny))
		x.code("bind", x.setLists(loop, []uint32{a}, []uint32{a}), 0)
		x.code("delete in use", x.del(a), inUseInput)
		x.deleteLoopback(loop)
		x.code("delete", x.del(a), 0)
		again := x.loopback()
		if in, out := x.bound(again); len(in)+len(out) > 0 {
			x.Errorf("a new interface has %v and %v", in, out)
		}
		x.deleteLoopback(again)
	}},
	{"rules are counted from their last replacement on", func(x *trial) {
		_, err := x.service().ACLStatsIntfCountersEnable(x.Context(), &acl.ACLStatsIntfCountersEnable{Enable: true})
		x.code("count", x.codeOf(err), 0)
		rules := []acl_types.ACLRule{x.ports(permit, api.UDP, 53, 53), x.proto(deny, api.UDP), x.rule(permit)}
		index := x.add(rules...)
		x.bindAt(true, nil, []uint32{index})
		want := func(what string, want ...uint64) {
			x.Helper()
			if got := x.hits(index); !slices.Equal(got[:min(len(got), len(want))], want) { // VPP has one more, which nothing uses
				x.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		x.pass("to a port that is permitted", x.to(api.UDP, 4000, 53))
		x.drop("to another", x.to(api.UDP, 4000, 54))
		x.drop("to another, again", x.to(api.UDP, 4001, 54))
		x.pass("another protocol", x.to(api.TCP, 4000, 54))
		want("after four packets", 1, 2, 1)
		x.change(index, rules...)
		want("after an equal replacement", 0, 0, 0)
	}},
}
