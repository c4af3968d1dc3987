package ligato_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/internal/vswitch"
)

// vppAgent is a substitute for a ligato vpp-agent. It takes keys one by one, as the agent takes
// them from etcd, and programs a vswitch through VPP's binary API. It has the pitfalls of the real
// agent: input that would crash the agent, or that the agent would ignore, fails the test.
type vppAgent struct {
	t      testing.TB
	prefix string
	conn   *core.Connection
	calls  acl.RPCService
	ports  map[string]uint32 // interfaces by their names in the configuration of the agent
	acls   map[string]*agentACL
}

// agentACL is an ACL configured by the agent.
type agentACL struct {
	index uint32
	value aclValue
}

// The agent's model, as defined by its protobuf. Unknown fields are rejected.
type (
	aclValue struct {
		Name       string      `json:"name"`
		Rules      []aclRule   `json:"rules"`
		Interfaces *interfaces `json:"interfaces"`
	}
	interfaces struct {
		Egress  []string `json:"egress"`
		Ingress []string `json:"ingress"`
	}
	aclRule struct {
		Action string  `json:"action"`
		IPRule *ipRule `json:"ip_rule"`
	}
	ipRule struct {
		IP   *ip   `json:"ip"`
		ICMP *icmp `json:"icmp"`
		TCP  *l4   `json:"tcp"`
		UDP  *l4   `json:"udp"`
	}
	ip struct {
		Destination string `json:"destination_network"`
		Source      string `json:"source_network"`
		Protocol    uint32 `json:"protocol"`
	}
	icmp struct {
		V6    bool       `json:"icmpv6"`
		Codes *icmpRange `json:"icmp_code_range"`
		Types *icmpRange `json:"icmp_type_range"`
	}
	icmpRange struct {
		First uint32 `json:"first"`
		Last  uint32 `json:"last"`
	}
	l4 struct {
		Destination *portRange `json:"destination_port_range"`
		Source      *portRange `json:"source_port_range"`
		FlagsMask   uint32     `json:"tcp_flags_mask"`
		FlagsValue  uint32     `json:"tcp_flags_value"`
	}
	portRange struct {
		Lower uint32 `json:"lower_port"`
		Upper uint32 `json:"upper_port"`
	}
)

func newVPPAgent(t testing.TB, prefix string, sw *vswitch.Switch) *vppAgent {
	t.Helper()
	core.SetLogLevel(1) // fatal
	conn, err := core.Connect(sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	return &vppAgent{t: t, prefix: prefix, conn: conn, calls: acl.NewServiceClient(conn), ports: map[string]uint32{}, acls: map[string]*agentACL{}}
}

// put applies one key: obsolete interfaces leave, rules change, new interfaces join.
func (a *vppAgent) put(key string, value []byte) {
	a.t.Helper()
	now := a.decode(key, value)
	old := a.acls[now.Name]
	if old == nil {
		if len(now.Rules) == 0 {
			a.t.Fatalf("%s: the agent refuses to create an ACL without rules", key)
		}
		old = &agentACL{index: a.replace(^uint32(0), now), value: aclValue{Name: now.Name, Rules: now.Rules}}
		a.acls[now.Name] = old
	}
	a.bind(old, old.value.bindings(), now.bindings(), false)
	if !equivalent(old.value.Rules, now.Rules) && len(now.Rules) > 0 { // the agent ignores an update to no rules
		a.replace(old.index, now)
	}
	a.bind(old, now.bindings(), old.value.bindings(), true)
	old.value = now
}

// remove applies the deletion of one key.
func (a *vppAgent) remove(key string) {
	a.t.Helper()
	old := a.acls[strings.TrimPrefix(key, a.prefix)]
	if old == nil {
		return // never there, or not parseable
	}
	a.bind(old, old.value.bindings(), nil, false)
	if _, err := a.calls.ACLDel(context.Background(), &acl.ACLDel{ACLIndex: old.index}); err != nil {
		a.t.Fatalf("%s: %v", key, err)
	}
	delete(a.acls, old.value.Name)
}

func (a *vppAgent) decode(key string, value []byte) (out aclValue) {
	a.t.Helper()
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		a.t.Fatalf("%s: the agent cannot read the value: %v\n%s", key, err, value)
	}
	if key != a.prefix+out.Name || len(out.Name) > 63 {
		a.t.Fatalf("%s: the name in the value is %q", key, out.Name)
	}
	return out
}

// binding is one direction of an interface.
type binding struct {
	name  string
	input bool
}

func (v aclValue) bindings() map[binding]bool {
	out := map[binding]bool{}
	if v.Interfaces != nil {
		for _, i := range v.Interfaces.Ingress {
			out[binding{i, true}] = true
		}
		for _, i := range v.Interfaces.Egress {
			out[binding{i, false}] = true
		}
	}
	return out
}

// bind adds or removes, one by one, the bindings of in that are not in notIn.
func (a *vppAgent) bind(x *agentACL, in, notIn map[binding]bool, add bool) {
	a.t.Helper()
	for b := range in {
		port, ok := a.ports[b.name]
		if notIn[b] || !ok { // a missing interface stays pending
			continue
		}
		_, err := a.calls.ACLInterfaceAddDel(context.Background(), &acl.ACLInterfaceAddDel{
			IsAdd: add, IsInput: b.input, SwIfIndex: interface_types.InterfaceIndex(port), ACLIndex: x.index,
		})
		if err != nil {
			a.t.Fatalf("bind %s to %v: %v", x.value.Name, b, err)
		}
	}
}

func (a *vppAgent) replace(index uint32, v aclValue) uint32 {
	a.t.Helper()
	var rules []acl_types.ACLRule
	for i, r := range v.Rules {
		rules = append(rules, a.rule(v.Name, i, r))
	}
	reply, err := a.calls.ACLAddReplace(context.Background(), &acl.ACLAddReplace{ACLIndex: index, Tag: v.Name, Count: uint32(len(rules)), R: rules})
	if err != nil {
		a.t.Fatalf("put %s: %v", v.Name, err)
	}
	return reply.ACLIndex
}

// rule converts a rule like the agent.
func (a *vppAgent) rule(name string, i int, r aclRule) (out acl_types.ACLRule) {
	a.t.Helper()
	action, ok := map[string]acl_types.ACLAction{"DENY": 0, "PERMIT": 1, "REFLECT": 2}[r.Action]
	if !ok || r.IPRule == nil || r.IPRule.IP == nil {
		a.t.Fatalf("%s: rule %d has no action, or says nothing of IP: %+v", name, i, r)
	}
	src, err := netip.ParsePrefix(r.IPRule.IP.Source)
	dst, err2 := netip.ParsePrefix(r.IPRule.IP.Destination)
	if err != nil || err2 != nil || src.Addr().Is4() != dst.Addr().Is4() || src != src.Masked() || dst != dst.Masked() {
		a.t.Fatalf("%s: rule %d needs two networks of one family: %+v", name, i, r.IPRule.IP)
	}
	out.IsPermit, out.SrcPrefix, out.DstPrefix = action, vppPrefix(src), vppPrefix(dst)
	out.Proto = ip_types.IPProto(r.IPRule.IP.Protocol)
	messages := 0
	for proto, m := range map[ip_types.IPProto]*l4{6: r.IPRule.TCP, 17: r.IPRule.UDP} {
		if m == nil {
			continue
		}
		if messages++; m.Source == nil || m.Destination == nil {
			a.t.Fatalf("%s: rule %d: the agent crashes when a range of ports is missing", name, i)
		}
		out.Proto, out.TCPFlagsMask, out.TCPFlagsValue = proto, uint8(m.FlagsMask), uint8(m.FlagsValue)
		out.SrcportOrIcmptypeFirst, out.SrcportOrIcmptypeLast = uint16(m.Source.Lower), uint16(m.Source.Upper)
		out.DstportOrIcmpcodeFirst, out.DstportOrIcmpcodeLast = uint16(m.Destination.Lower), uint16(m.Destination.Upper)
	}
	if m := r.IPRule.ICMP; m != nil {
		if messages++; m.Types == nil || m.Codes == nil {
			a.t.Fatalf("%s: rule %d: the agent crashes when a range of ICMP is missing", name, i)
		}
		out.Proto = map[bool]ip_types.IPProto{false: 1, true: 58}[m.V6]
		out.SrcportOrIcmptypeFirst, out.SrcportOrIcmptypeLast = uint16(m.Types.First), uint16(m.Types.Last)
		out.DstportOrIcmpcodeFirst, out.DstportOrIcmpcodeLast = uint16(m.Codes.First), uint16(m.Codes.Last)
	}
	if messages > 1 || messages == 1 && r.IPRule.IP.Protocol != 0 {
		a.t.Fatalf("%s: rule %d names several protocols: %+v", name, i, r.IPRule)
	}
	return out
}

func vppPrefix(p netip.Prefix) ip_types.Prefix {
	out, err := ip_types.ParsePrefix(p.String())
	if err != nil {
		panic(err) // it was parsed before
	}
	return out
}

// equivalent compares rules like the agent: it ignores the protocol number.
func equivalent(a, b []aclRule) bool {
	text := func(rules []aclRule) string {
		var out strings.Builder
		for _, r := range rules {
			i := *r.IPRule.IP
			i.Protocol = 0
			r.IPRule = &ipRule{&i, r.IPRule.ICMP, r.IPRule.TCP, r.IPRule.UDP}
			line, err := json.Marshal(r)
			if err != nil {
				panic(err)
			}
			out.Write(append(line, '\n'))
		}
		return out.String()
	}
	return text(a) == text(b)
}

// unsettled returns what must not exist after an Apply: interfaces with several ACLs in one
// direction, and ACLs without interfaces.
func (a *vppAgent) unsettled() (out []string) {
	seen := map[binding][]string{}
	for _, name := range slices.Sorted(maps.Keys(a.acls)) {
		b := a.acls[name].value.bindings()
		if len(b) == 0 && strings.HasPrefix(name, "sluice-") {
			out = append(out, "no interface has acl "+name)
		}
		for x := range b {
			seen[x] = append(seen[x], name)
		}
	}
	for b, names := range seen {
		if len(names) > 1 {
			out = append(out, fmt.Sprintf("interface %s has %v in one direction", b.name, names))
		}
	}
	return out
}
