package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// readMade finds the interfaces that sluice-cni made: those with its MACIP list. It queries VPP
// only when there are interfaces with such names.
func (l *Link) readMade(ctx context.Context, ifs []*Interface) error {
	byIndex := map[uint32]*Interface{}
	for _, n := range ifs {
		if vpp.MadeByCNI(n.Name) {
			byIndex[n.Index] = n
		}
	}
	if len(byIndex) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	client := acl.NewServiceClient(vpp.Streams{Connection: l.Conn})
	bound, err := vpp.Drain[*acl.MacipACLInterfaceListDetails](client.MacipACLInterfaceListDump(ctx, &acl.MacipACLInterfaceListDump{SwIfIndex: interface_types.InterfaceIndex(None)}))
	if err != nil {
		return fmt.Errorf("dump the macip lists of interfaces: %w", err)
	}
	all, err := vpp.Drain[*acl.MacipACLDetails](client.MacipACLDump(ctx, &acl.MacipACLDump{ACLIndex: None}))
	if err != nil {
		return fmt.Errorf("dump macip lists: %w", err)
	}
	lists := make(map[uint32]*acl.MacipACLDetails, len(all))
	for _, d := range all {
		lists[d.ACLIndex] = d
	}
	for _, b := range bound {
		for _, index := range b.Acls {
			if n, d := byIndex[uint32(b.SwIfIndex)], lists[index]; n != nil && d != nil {
				n.Made = madeBy(n, d)
			}
		}
	}
	return nil
}

// madeBy returns what a MACIP list records about its interface; nil for foreign lists.
func madeBy(n *Interface, d *acl.MacipACLDetails) *vpp.Made {
	hostIf, uid, ours := vpp.ParseSourceTag(d.Tag)
	if !ours || !strings.HasSuffix(n.Name, "-"+hostIf) {
		return nil
	}
	m := &vpp.Made{Tag: n.Tag, UID: uid}
	for _, rule := range d.R {
		if p := vpp.FromPrefix(rule.SrcPrefix); rule.IsPermit == acl_types.ACL_ACTION_API_PERMIT && p.IsSingleIP() {
			m.IPs = append(m.IPs, p.Addr().Unmap())
		}
	}
	return m
}

// Made returns the interfaces that sluice-cni made.
func (m *Mirror) Made() (out []vpp.Made) {
	for _, n := range m.Interfaces {
		if n.Made != nil {
			out = append(out, *n.Made)
		}
	}
	return out
}

// SameMade reports whether two interfaces were made for the same pod and addresses.
func SameMade(a, b vpp.Made) bool {
	return a.Tag == b.Tag && a.UID == b.UID && slices.Equal(a.IPs, b.IPs)
}
