package mirror

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

// Link is the connection to the vswitch.
type Link struct {
	*vpp.Link
	Paused atomic.Int64 // nanoseconds that calls took for which VPP holds its workers
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
func (l *Link) pausing(ctx context.Context) (done func()) {
	if wait := time.Until(l.rested); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	began := time.Now()
	return func() {
		took := time.Since(began)
		l.Paused.Add(int64(took))
		l.rested = time.Now().Add(min(took/restPart, maxRest))
	}
}

// Dial starts connecting; it does not wait for it.
func Dial(o vpp.Options) (*Link, error) {
	l, err := vpp.Dial(o)
	if err != nil {
		return nil, err
	}
	return &Link{Link: l}, nil
}

// needed are the requests without which nothing works.
var needed = []govpp.Message{
	&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceAddDel{}, &acl.ACLDump{}, &acl.ACLDetails{},
	&acl.ACLInterfaceListDump{}, &acl.ACLInterfaceListDetails{}, &interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceDetails{},
	&memclnt.ControlPing{},
}

// CheckVersion asks for the version of the vswitch and checks that it has all messages.
func (l *Link) CheckVersion(ctx context.Context) (string, error) {
	return l.Version(ctx, needed, "the acl plugin")
}
