package acl

import (
	"context"
	"fmt"

	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// none is the index that means "a new one" in requests and "all" in dumps.
const none = ^uint32(0)

// put adds an ACL (index none) or replaces the content of one, and returns its index.
func (l *link) put(ctx context.Context, index uint32, tag string, p entries.Piece) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	r, err := acl.NewServiceClient(l.Conn).ACLAddReplace(ctx,
		&acl.ACLAddReplace{ACLIndex: index, Tag: tag, Count: uint32(len(p.Entries)), R: toRules(p.Entries)})
	if err != nil {
		return none, fmt.Errorf("put acl %s of %d entries: %w", tag, len(p.Entries), err)
	}
	return r.ACLIndex, nil
}

// remove deletes an ACL that is bound nowhere.
func (l *link) remove(ctx context.Context, index uint32, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	if _, err := acl.NewServiceClient(l.Conn).ACLDel(ctx, &acl.ACLDel{ACLIndex: index}); err != nil {
		return fmt.Errorf("delete acl %d %s: %w", index, tag, err)
	}
	return nil
}

// bind sets the ACLs of both directions of an interface.
func (l *link) bind(ctx context.Context, n *netif, to lists) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	all := append(append([]uint32(nil), to.in...), to.out...)
	_, err := acl.NewServiceClient(l.Conn).ACLInterfaceSetACLList(ctx, &acl.ACLInterfaceSetACLList{
		SwIfIndex: interface_types.InterfaceIndex(n.index), Count: uint8(len(all)), NInput: uint8(len(to.in)), Acls: all})
	if err != nil {
		return fmt.Errorf("bind acls to interface %s: %w", n.name, err)
	}
	return nil
}

// addDel appends an ACL to what leaves by an interface, or takes it away. Sessions that
// began with what enters there live on, which setting the lists would end.
func (l *link) addDel(ctx context.Context, n *netif, index uint32, add bool) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	_, err := acl.NewServiceClient(l.Conn).ACLInterfaceAddDel(ctx, &acl.ACLInterfaceAddDel{
		IsAdd: add, SwIfIndex: interface_types.InterfaceIndex(n.index), ACLIndex: index})
	if err != nil {
		return fmt.Errorf("add to or take from interface %s acl %d: %w", n.name, index, err)
	}
	return nil
}

// readACLs returns an ACL, if it is there, or all, of whomever.
func (l *link) readACLs(ctx context.Context, index uint32) ([]*acl.ACLDetails, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	out, err := vpp.Drain[*acl.ACLDetails](acl.NewServiceClient(vpp.Streams{Connection: l.Conn}).ACLDump(ctx, &acl.ACLDump{ACLIndex: index}))
	if err != nil {
		return nil, fmt.Errorf("dump acls: %w", err)
	}
	return out, nil
}

// readLists returns the ACLs that are bound to interfaces.
func (l *link) readLists(ctx context.Context) (map[uint32]lists, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	all, err := vpp.Drain[*acl.ACLInterfaceListDetails](acl.NewServiceClient(vpp.Streams{Connection: l.Conn}).ACLInterfaceListDump(ctx,
		&acl.ACLInterfaceListDump{SwIfIndex: interface_types.InterfaceIndex(none)}))
	if err != nil {
		return nil, fmt.Errorf("dump the acls of interfaces: %w", err)
	}
	out := make(map[uint32]lists, len(all))
	for _, d := range all {
		n := min(int(d.NInput), len(d.Acls))
		out[uint32(d.SwIfIndex)] = lists{in: d.Acls[:n:n], out: d.Acls[n:]}
	}
	return out, nil
}

// readInterfaces returns all interfaces, without the ACLs that are bound to them.
func (l *link) readInterfaces(ctx context.Context) ([]*netif, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	all, err := vpp.Drain[*interfaces.SwInterfaceDetails](interfaces.NewServiceClient(vpp.Streams{Connection: l.Conn}).SwInterfaceDump(ctx,
		&interfaces.SwInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(none)}))
	if err != nil {
		return nil, fmt.Errorf("dump interfaces: %w", err)
	}
	out := make([]*netif, len(all))
	for i, d := range all {
		out[i] = &netif{index: uint32(d.SwIfIndex), name: d.InterfaceName, tag: d.Tag, down: d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP == 0}
	}
	return out, nil
}
