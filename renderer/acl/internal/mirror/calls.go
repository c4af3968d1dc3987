package mirror

import (
	"context"
	"errors"
	"fmt"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// None is the index that means "a new ACL" in requests and "all" in dumps.
const None = ^uint32(0)

// addReplace adds an ACL (index None) or replaces the content of one, and returns its index.
func (l *Link) addReplace(ctx context.Context, index uint32, tag string, p entries.Piece) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	r, err := acl.NewServiceClient(l.Conn).ACLAddReplace(ctx, addReplace(index, tag, p))
	if err != nil {
		return None, fmt.Errorf("put acl %s of %d entries: %w", tag, len(p.Entries), err)
	}
	return r.ACLIndex, nil
}

func addReplace(index uint32, tag string, p entries.Piece) *acl.ACLAddReplace {
	return &acl.ACLAddReplace{ACLIndex: index, Tag: tag, Count: uint32(len(p.Entries)), R: toRules(p.Entries)}
}

// Reclassify returns the command that sets whether sessions are evaluated again when rules change.
func Reclassify(on bool) string {
	if on {
		return "set acl-plugin reclassify-sessions 1"
	}
	return "set acl-plugin reclassify-sessions 0"
}

// putUnseen replaces the content of an ACL so that sessions do not see it. As long as
// reclassification is off, packets pass by sessions that policy has ended. So VPP has the request
// that turns it on again before it answers the one that turns it off, and a failure of the change
// does not leave it off. If the connection ends between two of the requests, the next connection
// turns it on (openFlows.configure).
func (l *Link) putUnseen(ctx context.Context, index uint32, tag string, p entries.Piece) (uint32, error) {
	off, on := &vlib.CliInband{Cmd: Reclassify(false)}, &vlib.CliInband{Cmd: Reclassify(true)}
	if _, err := l.Conn.GetMessageID(off); err != nil {
		return l.addReplace(ctx, index, tag, p) // it has no command line, so that reclassification stays as it is
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	replies, errs := l.together(ctx, off, addReplace(index, tag, p), on)
	if err := errors.Join(errs...); err != nil {
		return None, fmt.Errorf("put acl %s of %d entries while sessions are not evaluated: %w", tag, len(p.Entries), err)
	}
	isOff, known := replies[0].(*vlib.CliInbandReply)
	put, ours := replies[1].(*acl.ACLAddReplaceReply)
	isOn, same := replies[2].(*vlib.CliInbandReply)
	if !known || !ours || !same {
		return None, fmt.Errorf("put acl %s: replies of other types: %T, %T, %T", tag, replies[0], replies[1], replies[2])
	}
	if err := govpp.RetvalToVPPApiError(put.Retval); err != nil {
		return None, fmt.Errorf("put acl %s of %d entries: %w", tag, len(p.Entries), err)
	}
	// If both commands were refused, nothing was turned off.
	if err := govpp.RetvalToVPPApiError(isOn.Retval); err != nil && isOff.Retval == 0 {
		return None, fmt.Errorf("%s: %w", on.Cmd, err)
	}
	return index, nil
}

// putTogether writes several ACLs without waiting for each answer.
func (l *Link) putTogether(ctx context.Context, all []Write) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	requests := make([]govpp.Message, len(all))
	for i, w := range all {
		requests[i] = addReplace(w.Index, w.Tag, w.Piece)
	}
	replies, errs := l.together(ctx, requests...)
	for i, r := range replies {
		if put, ours := r.(*acl.ACLAddReplaceReply); errs[i] == nil && ours {
			errs[i] = govpp.RetvalToVPPApiError(put.Retval)
		} else if errs[i] == nil {
			errs[i] = fmt.Errorf("a reply of another type: %T", r)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("put acl %s of %d entries: %w", all[i].Tag, len(all[i].Piece.Entries), errs[i])
		}
	}
	return errors.Join(errs...)
}

// together sends requests one right after the other and awaits their replies after that, so that
// the vswitch does as little as possible between them. A request is sent even if an earlier one
// failed, or could not be sent. Replies and errors are in the order of the requests. An error of a
// reply itself is in the reply.
func (l *Link) together(ctx context.Context, requests ...govpp.Message) ([]govpp.Message, []error) {
	streams, errs := make([]govpp.Stream, len(requests)), make([]error, len(requests))
	for i, m := range requests {
		if streams[i], errs[i] = l.Conn.NewStream(ctx); errs[i] == nil {
			errs[i] = streams[i].SendMsg(m)
		}
	}
	replies := make([]govpp.Message, len(requests))
	for i, s := range streams {
		if s == nil {
			continue
		}
		if errs[i] == nil {
			replies[i], errs[i] = s.RecvMsg()
		}
		_ = s.Close() // its reply has come, or will not
	}
	return replies, errs
}

// remove deletes an ACL that is not bound.
func (l *Link) remove(ctx context.Context, index uint32, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	if _, err := acl.NewServiceClient(l.Conn).ACLDel(ctx, &acl.ACLDel{ACLIndex: index}); err != nil {
		return fmt.Errorf("delete acl %d %s: %w", index, tag, err)
	}
	return nil
}

// bind sets the ACLs of both directions of an interface.
func (l *Link) bind(ctx context.Context, n *Interface, to Lists) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	all := append(append([]uint32(nil), to.In...), to.Out...)
	_, err := acl.NewServiceClient(l.Conn).ACLInterfaceSetACLList(ctx, &acl.ACLInterfaceSetACLList{
		SwIfIndex: interface_types.InterfaceIndex(n.Index), Count: uint8(len(all)), NInput: uint8(len(to.In)), Acls: all})
	if err != nil {
		return fmt.Errorf("bind acls to interface %s: %w", n.Name, err)
	}
	return nil
}

// addDel appends an ACL to the output list of an interface, or removes it. Unlike setting the
// lists, it keeps the sessions that were created on input.
func (l *Link) addDel(ctx context.Context, n *Interface, index uint32, add bool) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer l.pausing(ctx)()
	_, err := acl.NewServiceClient(l.Conn).ACLInterfaceAddDel(ctx, &acl.ACLInterfaceAddDel{
		IsAdd: add, SwIfIndex: interface_types.InterfaceIndex(n.Index), ACLIndex: index})
	if err != nil {
		return fmt.Errorf("add to or take from interface %s acl %d: %w", n.Name, index, err)
	}
	return nil
}

// ReadACLs returns one ACL, if it exists, or all ACLs of all owners.
func (l *Link) ReadACLs(ctx context.Context, index uint32) ([]*acl.ACLDetails, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	out, err := vpp.Drain[*acl.ACLDetails](acl.NewServiceClient(vpp.Streams{Connection: l.Conn}).ACLDump(ctx, &acl.ACLDump{ACLIndex: index}))
	if err != nil {
		return nil, fmt.Errorf("dump acls: %w", err)
	}
	return out, nil
}

// readLists returns the ACL lists of interfaces.
func (l *Link) readLists(ctx context.Context) (map[uint32]Lists, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	all, err := vpp.Drain[*acl.ACLInterfaceListDetails](acl.NewServiceClient(vpp.Streams{Connection: l.Conn}).ACLInterfaceListDump(ctx,
		&acl.ACLInterfaceListDump{SwIfIndex: interface_types.InterfaceIndex(None)}))
	if err != nil {
		return nil, fmt.Errorf("dump the acls of interfaces: %w", err)
	}
	out := make(map[uint32]Lists, len(all))
	for _, d := range all {
		n := min(int(d.NInput), len(d.Acls))
		out[uint32(d.SwIfIndex)] = Lists{In: d.Acls[:n:n], Out: d.Acls[n:]}
	}
	return out, nil
}

// readInterfaces returns all interfaces without their ACL lists.
func (l *Link) readInterfaces(ctx context.Context) ([]*Interface, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	all, err := vpp.Drain[*interfaces.SwInterfaceDetails](interfaces.NewServiceClient(vpp.Streams{Connection: l.Conn}).SwInterfaceDump(ctx,
		&interfaces.SwInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(None)}))
	if err != nil {
		return nil, fmt.Errorf("dump interfaces: %w", err)
	}
	out := make([]*Interface, len(all))
	for i, d := range all {
		out[i] = &Interface{Index: uint32(d.SwIfIndex), Name: d.InterfaceName, Tag: d.Tag, Super: d.SupSwIfIndex, Down: d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP == 0}
	}
	return out, nil
}

// Count enables the counters of entries. VPP answers with the ID of another message, which GoVPP
// does not check here.
func (l *Link) Count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	if _, err := acl.NewServiceClient(l.Conn).ACLStatsIntfCountersEnable(ctx, &acl.ACLStatsIntfCountersEnable{Enable: true}); err != nil {
		return fmt.Errorf("turn on counters: %w", err)
	}
	return nil
}

// Raise sets an interface up if its index still belongs to the interface that was read.
func (l *Link) Raise(ctx context.Context, n *Interface) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	client := interfaces.NewServiceClient(vpp.Streams{Connection: l.Conn})
	index := interface_types.InterfaceIndex(n.Index)
	now, err := vpp.Drain[*interfaces.SwInterfaceDetails](client.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: index}))
	if err == nil && (len(now) != 1 || now[0].InterfaceName != n.Name || now[0].Tag != n.Tag) {
		err = errReplaced
	}
	if err == nil {
		_, err = client.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
	}
	if err != nil {
		return fmt.Errorf("set interface %s up: %w", n.Name, err)
	}
	return nil
}

// errReplaced is returned when another interface has the index now.
var errReplaced = errors.New("its index belongs to another interface now")

// SessionLimit returns the number of threads of the vswitch and its maximum number of sessions; 0
// when unknown.
func (l *Link) SessionLimit(ctx context.Context) (threads, limit uint64, err error) {
	size, who := &acl.ACLPluginGetConnTableMaxEntries{}, &vlib.ShowThreads{}
	for _, m := range []govpp.Message{size, who} {
		if _, err := l.Conn.GetMessageID(m); err != nil {
			return 1, 0, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	r, err := acl.NewServiceClient(l.Conn).ACLPluginGetConnTableMaxEntries(ctx, size)
	if err != nil {
		return 0, 0, fmt.Errorf("ask the vswitch for the size of its session table: %w", err)
	}
	all, err := vlib.NewServiceClient(l.Conn).ShowThreads(ctx, who)
	if err != nil {
		return 0, 0, fmt.Errorf("ask the vswitch for its threads: %w", err)
	}
	return uint64(max(1, len(all.ThreadData))), r.ConnTableMaxEntries, nil
}
