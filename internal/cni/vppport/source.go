package vppport

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// linkLocal is what neighbour discovery is sent from. VPP does not forward it.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// restrict lets an interface take only what has the addresses of the pod: policy knows pods by
// them.
func (c *Client) restrict(ctx context.Context, index interface_types.InterfaceIndex, p Port) error {
	var rules []acl_types.MacipACLRule
	permitted := []netip.Prefix{linkLocal}
	for _, a := range p.Addrs {
		permitted = append(permitted, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, from := range permitted {
		rules = append(rules, sourceRule(acl_types.ACL_ACTION_API_PERMIT, from, p.MAC))
	}
	for _, from := range []string{"0.0.0.0/0", "::/0"} {
		rules = append(rules, sourceRule(acl_types.ACL_ACTION_API_DENY, netip.MustParsePrefix(from), nil))
	}
	client := acl.NewServiceClient(c.conn)
	r, err := client.MacipACLAdd(ctx, &acl.MacipACLAdd{Tag: vpp.SourceTag(p.HostIf, p.UID), R: rules})
	if err == nil {
		_, err = client.MacipACLInterfaceAddDel(ctx, &acl.MacipACLInterfaceAddDel{IsAdd: true, SwIfIndex: index, ACLIndex: r.ACLIndex})
	}
	if err != nil {
		return fmt.Errorf("restrict what interface %s may send from: %w", NameOf(p.Kind, p.HostIf), err)
	}
	return nil
}

// sourceRule is about what comes from a block and, unless it is nil, from an address of Ethernet.
func sourceRule(action acl_types.ACLAction, from netip.Prefix, mac net.HardwareAddr) acl_types.MacipACLRule {
	r := acl_types.MacipACLRule{IsPermit: action, SrcPrefix: ip_types.Prefix{Address: ip_types.NewAddress(from.Addr().AsSlice()), Len: uint8(from.Bits())}}
	if copy(r.SrcMac[:], mac) > 0 {
		r.SrcMacMask = ethernet_types.MacAddress{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	return r
}

// sources returns the lists of sources by the name of the node's end.
func (c *Client) sources(ctx context.Context) (map[string][]uint32, error) {
	all, err := vpp.Drain[*acl.MacipACLDetails](acl.NewServiceClient(vpp.Streams{Connection: c.conn}).MacipACLDump(ctx, &acl.MacipACLDump{ACLIndex: ^uint32(0)}))
	if err != nil {
		return nil, fmt.Errorf("list VPP's lists of sources: %w", err)
	}
	out := map[string][]uint32{}
	for _, d := range all {
		if hostIf, _, ok := vpp.ParseSourceTag(d.Tag); ok {
			out[hostIf] = append(out[hostIf], d.ACLIndex)
		}
	}
	return out, nil
}

// unrestrict removes the list of sources of an interface that is gone.
func (c *Client) unrestrict(ctx context.Context, hostIf string) error {
	all, err := c.sources(ctx)
	if err != nil {
		return err
	}
	for _, index := range all[hostIf] {
		if _, err := acl.NewServiceClient(c.conn).MacipACLDel(ctx, &acl.MacipACLDel{ACLIndex: index}); err != nil {
			return fmt.Errorf("remove the list of sources of attachment %s: %w", hostIf, err)
		}
	}
	return nil
}
