package acl

import (
	"context"
	"sync/atomic"
	"time"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// Errors of the connection to the vswitch.
var (
	// ErrNotConnected is returned while there is no connection to the vswitch.
	ErrNotConnected = vpp.ErrNotConnected
	// ErrIncompatible is returned when the vswitch does not know a message, for
	// example because the acl plugin is not loaded or its version is another one.
	ErrIncompatible = vpp.ErrIncompatible
)

// link is the connection to the vswitch.
type link struct {
	*vpp.Link
	paused atomic.Int64 // nanoseconds that calls took for which VPP holds its workers
	rested time.Time    // VPP has forwarded what had queued up in the last of them
}

// Between two calls VPP forwards what has queued up in the first, for a part of the time that it
// took. It looks at its interfaces once before each call, and from some it takes a few packets
// each time only.
const (
	restPart = 8
	maxRest  = 20 * time.Millisecond
)

// pausing starts a call for which VPP holds its workers, and forwards nothing. What it returns
// ends it.
func (l *link) pausing(ctx context.Context) (done func()) {
	if wait := time.Until(l.rested); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	began := time.Now()
	return func() {
		took := time.Since(began)
		l.paused.Add(int64(took))
		l.rested = time.Now().Add(min(took/restPart, maxRest))
	}
}

// dial starts connecting; it does not wait for it.
func dial(o Options) (*link, error) {
	l, err := vpp.Dial(vpp.Options{Adapter: o.Adapter, Socket: o.Socket, Client: "sluice-acl", Timeout: o.Timeout, OnChange: o.OnChange})
	if err != nil {
		return nil, err
	}
	return &link{Link: l}, nil
}

// needed are the requests without which nothing works.
var needed = []govpp.Message{
	&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceAddDel{}, &acl.ACLDump{}, &acl.ACLDetails{},
	&acl.ACLInterfaceListDump{}, &acl.ACLInterfaceListDetails{}, &interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceDetails{},
	&memclnt.ControlPing{},
}

// version asks for the version of the vswitch and checks that it has all messages.
func (l *link) version(ctx context.Context) (string, error) {
	return l.Version(ctx, needed, "the acl plugin")
}
