package preview

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Renderers are the dataplanes that a change can be tried in: ACLs of VPP in the embedded vswitch,
// and the classifier of the kernel in memory.
var Renderers = []string{"acl", kernel}

// kernel is the renderer of the kernel.
const kernel = "xdp"

// dataplane is a backend that can be asked about packets and counts what changes it.
type dataplane interface {
	node.Backend
	node.Prober
	operations() int
}

func newDataplane(kind string, o Options) (dataplane, error) {
	switch kind {
	case "acl":
		return &aclDataplane{node.Vswitch{Options: acl.Options{Memory: o.ACLMemory}}}, nil
	case kernel:
		h := node.NewHeap()
		plane := &countingPlane{Dataplane: h.Options.Dataplane}
		h.Options.Dataplane, h.Options.PolicyMemory = plane, o.PolicyMemory
		return &xdpDataplane{h, plane}, nil
	}
	return nil, fmt.Errorf("there is no renderer %q that a change can be tried in: want %s", kind, strings.Join(Renderers, " or "))
}

type aclDataplane struct{ node.Vswitch }

func (d *aclDataplane) operations() int { return int(d.Switch.Changes()) }

type xdpDataplane struct {
	*node.Heap
	plane *countingPlane
}

func (d *xdpDataplane) operations() int { return int(d.plane.written.Load()) }

// countingPlane counts the writes to a policy map.
type countingPlane struct {
	xdp.Dataplane
	written atomic.Int64
}

// Write implements xdp.Dataplane.
func (p *countingPlane) Write(line uint32, content []compile.Line) error {
	p.written.Add(1)
	return p.Dataplane.Write(line, content)
}

// Store implements xdp.Dataplane.
func (p *countingPlane) Store(word, value uint32) error {
	p.written.Add(1)
	return p.Dataplane.Store(word, value)
}

// Flip implements xdp.Dataplane.
func (p *countingPlane) Flip(id, record uint32) error {
	p.written.Add(1)
	return p.Dataplane.Flip(id, record)
}
