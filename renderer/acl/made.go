package acl

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

// readMade finds what VPP says of the interfaces that sluice-cni made: those that have its list of
// sources. VPP is asked only where there are interfaces with such names.
func (l *link) readMade(ctx context.Context, ifs []*netif) error {
	byIndex := map[uint32]*netif{}
	for _, n := range ifs {
		if vpp.MadeByCNI(n.name) {
			byIndex[n.index] = n
		}
	}
	if len(byIndex) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	client := acl.NewServiceClient(vpp.Streams{Connection: l.Conn})
	bound, err := vpp.Drain[*acl.MacipACLInterfaceListDetails](client.MacipACLInterfaceListDump(ctx, &acl.MacipACLInterfaceListDump{SwIfIndex: interface_types.InterfaceIndex(none)}))
	if err != nil {
		return fmt.Errorf("dump the lists of sources of interfaces: %w", err)
	}
	all, err := vpp.Drain[*acl.MacipACLDetails](client.MacipACLDump(ctx, &acl.MacipACLDump{ACLIndex: none}))
	if err != nil {
		return fmt.Errorf("dump lists of sources: %w", err)
	}
	lists := make(map[uint32]*acl.MacipACLDetails, len(all))
	for _, d := range all {
		lists[d.ACLIndex] = d
	}
	for _, b := range bound {
		for _, index := range b.Acls {
			if n, d := byIndex[uint32(b.SwIfIndex)], lists[index]; n != nil && d != nil {
				n.made = madeBy(n, d)
			}
		}
	}
	return nil
}

// madeBy returns what a list of sources says of the interface that it is for; nil for one of others.
func madeBy(n *netif, d *acl.MacipACLDetails) *vpp.Made {
	hostIf, uid, ours := vpp.ParseSourceTag(d.Tag)
	if !ours || !strings.HasSuffix(n.name, "-"+hostIf) {
		return nil
	}
	m := &vpp.Made{Tag: n.tag, UID: uid}
	for _, rule := range d.R {
		if p := vpp.FromPrefix(rule.SrcPrefix); rule.IsPermit == acl_types.ACL_ACTION_API_PERMIT && p.IsSingleIP() {
			m.IPs = append(m.IPs, p.Addr().Unmap())
		}
	}
	return m
}

// Made returns the interfaces that sluice-cni made, as they were read last. Any goroutine may call it;
// it waits for no Commit. OnChange is called when it is different.
func (r *Renderer) Made() []vpp.Made { return r.published.Load().made }

// made returns what the mirror has.
func (m *mirror) made() (out []vpp.Made) {
	for _, n := range m.ifs {
		if n.made != nil {
			out = append(out, *n.made)
		}
	}
	return out
}

func sameMade(a, b vpp.Made) bool {
	return a.Tag == b.Tag && a.UID == b.UID && slices.Equal(a.IPs, b.IPs)
}

// noticeMade has a snapshot say which interfaces sluice-cni made, and OnChange called if they are others
// than before: policy may know their pods by the addresses.
func (r *Renderer) noticeMade(s *snapshot) {
	if last := r.published.Load(); last != nil {
		s.made = last.made
	}
	if r.mirror == nil {
		return // what was read last counts
	}
	if now := r.mirror.made(); !slices.EqualFunc(now, s.made, sameMade) {
		s.made = now
		r.link.Prompt()
	}
}
