package ligato

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gogo/protobuf/proto"
	"github.com/gogo/protobuf/types"
	vpp_acl "github.com/ligato/vpp-agent/api/models/vpp/acl"
	kvs "github.com/ligato/vpp-agent/plugins/kvscheduler/api"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// configurator is the part of a vpp-agent that programs ACLs: two descriptors for the
// scheduler, as those of its ACL plugin. It is a plugin of the agent.
type configurator struct {
	scheduler kvs.KVScheduler
	conn      govpp.Connection
	ports     map[string]uint32 // interfaces by name

	mu      sync.Mutex
	indexes map[string]uint32 // ACLs by name
	done    []string          // what the scheduler asked for, in its order
}

func (c *configurator) String() string { return "configurator" }
func (c *configurator) Close() error   { return nil }

// Init registers the descriptors.
func (c *configurator) Init() error {
	c.indexes = map[string]uint32{}
	if err := c.scheduler.RegisterKVDescriptor(&kvs.KVDescriptor{
		Name: "vpp-acl", NBKeyPrefix: vpp_acl.ModelACL.KeyPrefix(), ValueTypeName: vpp_acl.ModelACL.ProtoName(),
		KeySelector: vpp_acl.ModelACL.IsKeyValid, KeyLabel: vpp_acl.ModelACL.StripKeyPrefix,
		ValueComparator: func(_ string, a, b proto.Message) bool { return sameRules(a.(*vpp_acl.ACL), b.(*vpp_acl.ACL)) },
		Create: func(_ string, v proto.Message) (kvs.Metadata, error) {
			return nil, c.put("create", ^uint32(0), v.(*vpp_acl.ACL))
		},
		Update: func(_ string, _, v proto.Message, _ kvs.Metadata) (kvs.Metadata, error) {
			return nil, c.put("update", c.indexes[v.(*vpp_acl.ACL).Name], v.(*vpp_acl.ACL))
		},
		Delete:        func(_ string, v proto.Message, _ kvs.Metadata) error { return c.remove(v.(*vpp_acl.ACL).Name) },
		DerivedValues: bindings,
	}); err != nil {
		return err
	}
	return c.scheduler.RegisterKVDescriptor(&kvs.KVDescriptor{
		Name: "vpp-acl-to-interface",
		KeySelector: func(key string) bool {
			_, _, _, ok := vpp_acl.ParseACLToInterfaceKey(key)
			return ok
		},
		Create: func(key string, _ proto.Message) (kvs.Metadata, error) { return nil, c.bind("bind", key, true) },
		Delete: func(key string, _ proto.Message, _ kvs.Metadata) error { return c.bind("unbind", key, false) },
	})
}

// bindings are values of their own to the scheduler, which follow from an ACL.
func bindings(_ string, v proto.Message) (out []kvs.KeyValuePair) {
	a := v.(*vpp_acl.ACL)
	for _, name := range a.GetInterfaces().GetIngress() {
		out = append(out, kvs.KeyValuePair{Key: vpp_acl.ToInterfaceKey(a.Name, name, vpp_acl.IngressFlow), Value: &types.Empty{}})
	}
	for _, name := range a.GetInterfaces().GetEgress() {
		out = append(out, kvs.KeyValuePair{Key: vpp_acl.ToInterfaceKey(a.Name, name, vpp_acl.EgressFlow), Value: &types.Empty{}})
	}
	return out
}

func sameRules(a, b *vpp_acl.ACL) bool {
	return slices.EqualFunc(a.Rules, b.Rules, func(x, y *vpp_acl.ACL_Rule) bool { return proto.Equal(x, y) })
}

func (c *configurator) put(verb string, index uint32, a *vpp_acl.ACL) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = append(c.done, verb+" "+a.Name)
	var rules []acl_types.ACLRule
	for _, r := range a.Rules {
		rule, err := ruleOf(r)
		if err != nil {
			return err
		}
		rules = append(rules, rule)
	}
	reply, err := acl.NewServiceClient(c.conn).ACLAddReplace(context.Background(), &acl.ACLAddReplace{ACLIndex: index, Tag: a.Name, Count: uint32(len(rules)), R: rules})
	if err == nil {
		c.indexes[a.Name] = reply.ACLIndex
	}
	return err
}

func (c *configurator) remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = append(c.done, "delete "+name)
	_, err := acl.NewServiceClient(c.conn).ACLDel(context.Background(), &acl.ACLDel{ACLIndex: c.indexes[name]})
	delete(c.indexes, name)
	return err
}

func (c *configurator) bind(verb, key string, add bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, iface, flow, _ := vpp_acl.ParseACLToInterfaceKey(key)
	c.done = append(c.done, fmt.Sprintf("%s %s %s %s", verb, name, flow, iface))
	_, err := acl.NewServiceClient(c.conn).ACLInterfaceAddDel(context.Background(), &acl.ACLInterfaceAddDel{
		IsAdd: add, IsInput: flow == vpp_acl.IngressFlow, SwIfIndex: interface_types.InterfaceIndex(c.ports[iface]), ACLIndex: c.indexes[name],
	})
	return err
}

// take returns what was done since the last call.
func (c *configurator) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.done
	c.done = nil
	return done
}

// ruleOf converts a rule of vpp-agent's model into one of VPP.
func ruleOf(r *vpp_acl.ACL_Rule) (out acl_types.ACLRule, err error) {
	out.IsPermit = acl_types.ACLAction(r.Action)
	if out.SrcPrefix, err = ip_types.ParsePrefix(r.IpRule.Ip.SourceNetwork); err != nil {
		return out, err
	}
	if out.DstPrefix, err = ip_types.ParsePrefix(r.IpRule.Ip.DestinationNetwork); err != nil {
		return out, err
	}
	ports := func(proto ip_types.IPProto, src, dst *vpp_acl.ACL_Rule_IpRule_PortRange) {
		out.Proto = proto
		out.SrcportOrIcmptypeFirst, out.SrcportOrIcmptypeLast = uint16(src.LowerPort), uint16(src.UpperPort)
		out.DstportOrIcmpcodeFirst, out.DstportOrIcmpcodeLast = uint16(dst.LowerPort), uint16(dst.UpperPort)
	}
	switch ip := r.IpRule; {
	case ip.Tcp != nil:
		ports(ip_types.IP_API_PROTO_TCP, ip.Tcp.SourcePortRange, ip.Tcp.DestinationPortRange)
		out.TCPFlagsMask, out.TCPFlagsValue = uint8(ip.Tcp.TcpFlagsMask), uint8(ip.Tcp.TcpFlagsValue)
	case ip.Udp != nil:
		ports(ip_types.IP_API_PROTO_UDP, ip.Udp.SourcePortRange, ip.Udp.DestinationPortRange)
	case ip.Icmp != nil:
		out.Proto = ip_types.IP_API_PROTO_ICMP
		if ip.Icmp.Icmpv6 {
			out.Proto = ip_types.IP_API_PROTO_ICMP6
		}
		out.SrcportOrIcmptypeFirst, out.SrcportOrIcmptypeLast = uint16(ip.Icmp.IcmpTypeRange.First), uint16(ip.Icmp.IcmpTypeRange.Last)
		out.DstportOrIcmpcodeFirst, out.DstportOrIcmpcodeLast = uint16(ip.Icmp.IcmpCodeRange.First), uint16(ip.Icmp.IcmpCodeRange.Last)
	}
	return out, nil
}
