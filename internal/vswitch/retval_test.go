package vswitch

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify/classifytest"
)

func TestACLAddReplaceValidatesAsVPP(t *testing.T) {
	_, conn := newTestSwitch(t, Options{})
	valid := wireRules(rule(RulePermit, "10.0.0.0/8", "192.0.2.0/24", 6, Range{First: 1, Last: 2}, Range{First: 3, Last: 4}))[0]
	valid6 := wireRules(rule(RulePermit, "2001:db8::/32", "2001:db8:1::/48", 6, Range{First: 1, Last: 2}, Range{First: 3, Last: 4}))[0]
	change := func(r acl_types.ACLRule, f func(*acl_types.ACLRule)) acl_types.ACLRule { f(&r); return r }
	mask := valid
	for _, c := range []struct {
		name  string
		index uint32
		tag   string
		rule  acl_types.ACLRule
		want  govpp.VPPApiError
	}{
		{"valid", newACLIndex, "t", valid, 0},
		{"valid IPv6", newACLIndex, "t", valid6, 0},
		{"host bits in the source", newACLIndex, "", change(mask, func(r *acl_types.ACLRule) { r.SrcPrefix.Len = 4; r.SrcPrefix.Address.Un.XXX_UnionData[3] = 1 }), -57},
		{"host bits in the destination", newACLIndex, "", change(mask, func(r *acl_types.ACLRule) { r.DstPrefix.Len = 8 }), -58},
		{"host bits in an IPv6 source", newACLIndex, "", change(valid6, func(r *acl_types.ACLRule) { r.SrcPrefix.Len = 16 }), -57},
		{"IPv4 prefix of 33 bits", newACLIndex, "", change(mask, func(r *acl_types.ACLRule) { r.SrcPrefix.Len = 33 }), -57},
		{"IPv6 prefix of 129 bits", newACLIndex, "", change(valid6, func(r *acl_types.ACLRule) { r.DstPrefix.Len = 129 }), -58},
		{"unknown family", newACLIndex, "", change(mask, func(r *acl_types.ACLRule) { r.SrcPrefix.Address.Af = 2 }), -57},
		{"two families", newACLIndex, "", change(mask, func(r *acl_types.ACLRule) { r.DstPrefix = valid6.DstPrefix }), -57},
		{"inverted source ports", newACLIndex, "", change(mask, func(r *acl_types.ACLRule) { r.SrcportOrIcmptypeFirst = 3 }), -8},
		{"inverted destination ports", newACLIndex, "", change(mask, func(r *acl_types.ACLRule) { r.DstportOrIcmpcodeFirst = 5 }), -8},
		{"unknown action", newACLIndex, "", change(mask, func(r *acl_types.ACLRule) { r.IsPermit = 7 }), -7},
		{"tag of 63 bytes", newACLIndex, strings.Repeat("x", 63), valid, 0},
		{"tag of 64 bytes", newACLIndex, strings.Repeat("x", 64), valid, -7},
		{"replacement of what does not exist", 1000, "", valid, -6},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := dumpACLs(t, conn, newACLIndex)
			_, err := acl.NewServiceClient(conn).ACLAddReplace(t.Context(), &acl.ACLAddReplace{ACLIndex: c.index, Tag: c.tag, R: []acl_types.ACLRule{valid, c.rule}})
			if got := code(t, err); got != c.want {
				t.Errorf("return value %d, want %d", got, c.want)
			}
			if after := dumpACLs(t, conn, newACLIndex); c.want != 0 && len(after) != len(before) {
				t.Errorf("%d ACLs before, %d after a refusal", len(before), len(after))
			}
		})
	}
}

func TestACLDumpReturnsRules(t *testing.T) {
	_, conn := newTestSwitch(t, Options{})
	var rules []Rule
	for i := range uint16(18) {
		r := rule(RuleAction(i%3), "10.0.0.0/8", "192.0.2.0/24", []uint8{0, 1, 6, 17, 58, 132}[i%6], Range{First: i, Last: i + 1}, Range{First: i, Last: 65535 - i})
		if i%2 == 1 {
			r.Src, r.Dst = rule(0, "2001:db8::/32", "::/0", 0, Range{}, Range{}).Src, rule(0, "::/0", "::1/128", 0, Range{}, Range{}).Dst
		}
		r.FlagsMask, r.FlagsValue = uint8(i), uint8(i/2)
		rules = append(rules, r)
	}
	index := mustPut(t, conn, newACLIndex, "mixed", rules...)
	got := dumpACLs(t, conn, index)
	want := []*acl.ACLDetails{{ACLIndex: index, Tag: "mixed", Count: 18, R: wireRules(rules...)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dump (-want +got):\n%s", diff)
	}
	if got := dumpACLs(t, conn, 55); len(got) != 0 {
		t.Errorf("dump of an unknown ACL has %d entries", len(got))
	}
}

func TestACLDumpOf16000Rules(t *testing.T) {
	_, conn := newTestSwitch(t, Options{})
	rules, _ := classifytest.PolicyRules(16_000)
	index := mustPut(t, conn, newACLIndex, "large", rules...)
	if got := dumpACLs(t, conn, index); len(got) != 1 || len(got[0].R) != len(rules) {
		t.Errorf("dump is not complete")
	}
}

func del(t testing.TB, s *Switch, index uint32) govpp.VPPApiError {
	t.Helper()
	_, err := acl.NewServiceClient(connect(t, s.Adapter())).ACLDel(t.Context(), &acl.ACLDel{ACLIndex: index})
	return code(t, err)
}

func TestACLDelete(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	port := sw.AddInterface("pod", "")
	index := mustPut(t, conn, newACLIndex, "first", both(RulePermit)...)
	if index != 0 {
		t.Errorf("the first ACL has index %d", index)
	}
	mustBind(t, conn, port, []uint32{index}, nil)
	if got := del(t, sw, index); got != govpp.ACL_IN_USE_INBOUND {
		t.Errorf("bound on input: %v", got)
	}
	mustBind(t, conn, port, nil, []uint32{index})
	if got := del(t, sw, index); got != govpp.ACL_IN_USE_OUTBOUND {
		t.Errorf("bound on output: %v", got)
	}
	mustBind(t, conn, port, nil, nil)
	if got := del(t, sw, index); got != 0 {
		t.Errorf("not bound: %v", got)
	}
	if got := del(t, sw, index); got != govpp.NO_SUCH_ENTRY {
		t.Errorf("deleted before: %v", got)
	}
}

func TestACLIndicesAreReusedLastInFirstOut(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	for range 5 {
		mustPut(t, conn, newACLIndex, "")
	}
	for _, i := range []uint32{1, 3, 2} {
		if rv := del(t, sw, i); rv != 0 {
			t.Fatal(rv)
		}
	}
	var got []uint32
	for range 4 {
		got = append(got, mustPut(t, conn, newACLIndex, ""))
	}
	if want := []uint32{2, 3, 1, 5}; !slices.Equal(got, want) {
		t.Errorf("indices %v, want %v", got, want)
	}
}

func TestSetACLListActsLikeVPP(t *testing.T) {
	for _, c := range []struct {
		name            string
		port            uint32
		inputs, outputs []uint32
		want            govpp.VPPApiError
		wantIn, wantOut []uint32
	}{
		{"both directions", 1, []uint32{0, 1}, []uint32{1, 2}, 0, []uint32{0, 1}, []uint32{1, 2}},
		{"empty lists", 1, nil, nil, 0, nil, nil},
		{"unknown interface", 9, []uint32{0}, nil, govpp.INVALID_SW_IF_INDEX, []uint32{2}, []uint32{2}},
		{"undefined ACL on input", 1, []uint32{0, 77}, []uint32{1}, govpp.NO_SUCH_ENTRY, []uint32{2}, []uint32{2}},
		{"undefined ACL on output", 1, []uint32{0}, []uint32{77}, govpp.NO_SUCH_ENTRY, []uint32{2}, []uint32{2}},
		{"duplicate on input, after the outputs are done", 1, []uint32{0, 0}, []uint32{1}, 1, []uint32{2}, []uint32{1}},
		{"duplicate on output", 1, []uint32{0}, []uint32{1, 1}, 1, []uint32{2}, []uint32{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sw, conn := newTestSwitch(t, Options{})
			port := sw.AddInterface("pod", "")
			for range 3 {
				mustPut(t, conn, newACLIndex, "", both(RulePermit)...)
			}
			mustBind(t, conn, port, []uint32{2}, []uint32{2})
			if got := setLists(t, conn, c.port, c.inputs, c.outputs); got != c.want {
				t.Errorf("return value %d, want %d", got, c.want)
			}
			got := sw.Interfaces()[port]
			if !slices.Equal(got.Inputs, c.wantIn) || !slices.Equal(got.Outputs, c.wantOut) {
				t.Errorf("bound %v and %v, want %v and %v", got.Inputs, got.Outputs, c.wantIn, c.wantOut)
			}
		})
	}
}

func TestInterfaceAddDelAppendsAndRemoves(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	port := sw.AddInterface("pod", "")
	for range 2 {
		mustPut(t, conn, newACLIndex, "", both(RulePermit)...)
	}
	for _, c := range []struct {
		add, input bool
		port, acl  uint32
		want       govpp.VPPApiError
	}{
		{true, true, port, 1, 0},
		{true, true, port, 0, 0},
		{true, true, port, 0, govpp.ACL_IN_USE_INBOUND},
		{true, false, port, 0, 0},
		{true, false, port, 0, govpp.ACL_IN_USE_OUTBOUND},
		{true, true, port, 7, govpp.NO_SUCH_ENTRY},
		{true, true, 99, 0, govpp.INVALID_SW_IF_INDEX},
		{false, true, 99, 0, govpp.INVALID_SW_IF_INDEX},
		{false, false, port, 1, govpp.NO_SUCH_ENTRY},
		{false, true, port, 1, 0},
	} {
		_, err := acl.NewServiceClient(conn).ACLInterfaceAddDel(t.Context(), &acl.ACLInterfaceAddDel{
			IsAdd: c.add, IsInput: c.input, SwIfIndex: interface_types.InterfaceIndex(c.port), ACLIndex: c.acl,
		})
		if got := code(t, err); got != c.want {
			t.Errorf("%+v: return value %d", c, got)
		}
	}
	got := sw.Interfaces()[port]
	if !slices.Equal(got.Inputs, []uint32{0}) || !slices.Equal(got.Outputs, []uint32{0}) {
		t.Errorf("bound: %+v", got)
	}
	if got := sw.ACLs()[0]; !cmp.Equal(got, ACL{Index: 0, Rules: 2, Inputs: []uint32{port}, Outputs: []uint32{port}}) {
		t.Errorf("users: %+v", got)
	}
}

func TestRulesAreListed(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	index := mustPut(t, conn, newACLIndex, "t", both(RuleDeny)...)
	if got, ok := sw.Rules(index); !ok || len(got) != 2 || got[1].Protocol != api.AnyProtocol {
		t.Errorf("rules: %v, %v", got, ok)
	}
	if _, ok := sw.Rules(7); ok {
		t.Error("an ACL that does not exist has rules")
	}
}
