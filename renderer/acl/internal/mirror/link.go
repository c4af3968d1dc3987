package mirror

import (
	"context"
	"sync/atomic"
	"time"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// Link is the connection to the vswitch.
type Link struct {
	*vpp.Link
	Paused atomic.Int64 // nanoseconds of calls during which VPP holds its workers
	rested time.Time    // until when VPP was left to forward the packets queued in the last one
}

// Between two such calls the link waits for a part of the time that the first call took, so that
// VPP forwards queued packets. VPP polls its interfaces once before each call, and takes only a few
// packets from some of them each time.
const (
	restPart = 8
	maxRest  = 20 * time.Millisecond
)

// pausing starts a call during which VPP holds its workers and forwards nothing. The returned
// function ends it.
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

// Dial starts connecting and does not wait.
func Dial(o vpp.Options) (*Link, error) {
	l, err := vpp.Dial(o)
	if err != nil {
		return nil, err
	}
	return &Link{Link: l}, nil
}

// uses are the requests of the renderer.
var uses = vpp.Uses{
	Part: "the acl plugin",
	Needed: []govpp.Message{
		&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceAddDel{}, &acl.ACLDump{},
		&acl.ACLInterfaceListDump{}, &interfaces.SwInterfaceDump{}, &memclnt.ControlPing{},
	},
	Wanted: []govpp.Message{
		&acl.ACLStatsIntfCountersEnable{}, &acl.ACLPluginGetConnTableMaxEntries{}, &acl.MacipACLDump{}, &acl.MacipACLInterfaceListDump{},
		&interfaces.SwInterfaceSetFlags{}, &vlib.ShowThreads{},
	},
}

// CheckVersion returns the version of the vswitch, and checks that it has the needed messages.
func (l *Link) CheckVersion(ctx context.Context) (string, error) {
	return l.Version(ctx, uses)
}
