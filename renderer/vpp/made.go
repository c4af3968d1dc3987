package vpp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
)

// AllInterfaces is the index that selects all interfaces, or lists, in messages.
const AllInterfaces = ^interface_types.InterfaceIndex(0)

// Named is the name and the tag of an interface.
type Named struct{ Name, Tag string }

// ReadMade returns what sluice-cni recorded about interfaces, by index. It queries the vswitch only
// if one of them has a name of sluice-cni.
func (l *Link) ReadMade(ctx context.Context, all map[uint32]Named) (map[uint32]*Made, error) {
	byCNI := func(n Named) bool { return MadeByCNI(n.Name) }
	if !slices.ContainsFunc(slices.Collect(maps.Values(all)), byCNI) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
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
			n, list := all[uint32(b.SwIfIndex)], lists[index]
			if !byCNI(n) || list == nil {
				continue
			}
			if m := madeBy(n, list); m != nil {
				out[uint32(b.SwIfIndex)] = m
			}
		}
	}
	return out, nil
}

// madeBy returns what a MACIP list records about its interface; nil for foreign lists.
func madeBy(n Named, list *acl.MacipACLDetails) *Made {
	hostIf, uid, ours := ParseSourceTag(list.Tag)
	if !ours || !strings.HasSuffix(n.Name, "-"+hostIf) {
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
