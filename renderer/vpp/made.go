package vpp

import (
	"context"
	"fmt"
	"strings"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
)

// AllInterfaces is the index that selects all interfaces, or lists, in messages.
const AllInterfaces = ^interface_types.InterfaceIndex(0)

// ReadMade returns what sluice-cni recorded about interfaces, by index. It queries the vswitch only
// if one of them has a name of sluice-cni.
func (l *Link) ReadMade(ctx context.Context, all []*interfaces.SwInterfaceDetails) (map[uint32]*Made, error) {
	byIndex := map[interface_types.InterfaceIndex]*interfaces.SwInterfaceDetails{}
	for _, d := range all {
		if MadeByCNI(d.InterfaceName) {
			byIndex[d.SwIfIndex] = d
		}
	}
	if len(byIndex) == 0 {
		return nil, nil
	}
	client := acl.NewServiceClient(Streams{l.Conn})
	bound, err := Drain[*acl.MacipACLInterfaceListDetails](client.MacipACLInterfaceListDump(ctx, &acl.MacipACLInterfaceListDump{SwIfIndex: AllInterfaces}))
	if err != nil {
		return nil, fmt.Errorf("read the macip lists of interfaces: %w", err)
	}
	found, err := Drain[*acl.MacipACLDetails](client.MacipACLDump(ctx, &acl.MacipACLDump{ACLIndex: uint32(AllInterfaces)}))
	if err != nil {
		return nil, fmt.Errorf("read macip lists: %w", err)
	}
	lists := make(map[uint32]*acl.MacipACLDetails, len(found))
	for _, d := range found {
		lists[d.ACLIndex] = d
	}
	out := map[uint32]*Made{}
	for _, b := range bound {
		for _, index := range b.Acls {
			if n, list := byIndex[b.SwIfIndex], lists[index]; n != nil && list != nil {
				if m := madeBy(n, list); m != nil {
					out[uint32(b.SwIfIndex)] = m
				}
			}
		}
	}
	return out, nil
}

// madeBy returns what a MACIP list records about its interface; nil for foreign lists.
func madeBy(n *interfaces.SwInterfaceDetails, list *acl.MacipACLDetails) *Made {
	hostIf, uid, ours := ParseSourceTag(list.Tag)
	if !ours || !strings.HasSuffix(n.InterfaceName, "-"+hostIf) {
		return nil
	}
	m := &Made{Tag: n.Tag, UID: uid}
	for _, rule := range list.R {
		if p := FromPrefix(rule.SrcPrefix); rule.IsPermit == acl_types.ACL_ACTION_API_PERMIT && p.IsSingleIP() {
			m.IPs = append(m.IPs, p.Addr().Unmap())
		}
	}
	return m
}
