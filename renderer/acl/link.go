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
}

// pausing starts a call for which VPP holds its workers, and forwards nothing. What it returns
// ends it.
func (l *link) pausing() (done func()) {
	began := time.Now()
	return func() { l.paused.Add(int64(time.Since(began))) }
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
