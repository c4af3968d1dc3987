package embedding

import (
	"context"
	"errors"
	"log/slog"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/keeper"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// KernelAgent makes the interfaces of pods itself, and has the kernel enforce policy at them.
type KernelAgent struct {
	// Changed holds a token when Look is to be called.
	Changed chan struct{}

	policy    *policy.Handler
	endpoints *keeper.Keeper
	gate      *gate.Gate
	kernel    *xdp.Kernel
	stack     *xdp.Renderer
}

// NewKernelAgent makes an agent that owns a folder for pins in a bpf file system. Its methods
// belong to one goroutine, in the node's network namespace.
func NewKernelAgent(node, pins string, log *slog.Logger) (a *KernelAgent, err error) {
	a = &KernelAgent{Changed: make(chan struct{}, 1), gate: gate.New(pins)}
	look := func() {
		select {
		case a.Changed <- struct{}{}:
		default: // there is a token
		}
	}
	if a.kernel, err = xdp.NewKernel(xdp.KernelOptions{Log: log, PinPath: pins, Owner: xdp.Owner{Node: node}}); err != nil {
		return nil, err
	}
	a.endpoints, err = keeper.New(keeper.Config{Log: log, Gate: a.gate, Node: node, Attached: a.kernel.Decides, OnChange: look})
	if err != nil {
		return nil, errors.Join(err, a.kernel.Close())
	}
	a.stack, err = xdp.New(xdp.Options{
		Log: log, Dataplane: a.kernel, OnChange: look,
		Interfaces: a.endpoints.Interfaces, Enforced: a.endpoints.Enforced, Release: a.endpoints.Release,
	})
	if err != nil {
		return nil, errors.Join(err, a.kernel.Close())
	}
	a.policy = policy.NewHandler(policy.Deps{
		Log: log, Node: node, Renderers: []renderer.Renderer{a.stack}, Registered: a.endpoints.Registered,
	})
	return a, errors.Join(a.policy.Init(), a.endpoints.Start())
}

// Run follows the node's interfaces until the context ends. It is for a goroutine of its own.
func (a *KernelAgent) Run(ctx context.Context) error { return a.endpoints.Run(ctx) }

// AddPod says that an interface is a pod's. When it returns the interface lets nothing pass, or
// what policy permits already; no process of the pod may run before.
func (a *KernelAgent) AddPod(c endpoints.Claim) error { return a.endpoints.Claim(c) }

// RemovePod says that the interface of a claim is not the pod's any more. It lets nothing pass from
// then on.
func (a *KernelAgent) RemovePod(owner string) error { return a.endpoints.Withdraw(owner) }

// Tell brings objects of the cluster down to the kernel.
func (a *KernelAgent) Tell(ctx context.Context, resync bool, objects []model.Delta) error {
	if resync {
		return a.policy.Resync(ctx, objects)
	}
	return a.policy.Update(ctx, objects)
}

// Look has policy enforced where it is to be enforced now.
func (a *KernelAgent) Look(ctx context.Context) error { return a.policy.Reapply(ctx) }

// Endpoints returns what is known of interfaces: whose they are, and whether they are blocked.
func (a *KernelAgent) Endpoints() []endpoints.Endpoint { return a.endpoints.Endpoints() }

// Close ends the agent. What is enforced and what is blocked stay so.
func (a *KernelAgent) Close() error {
	return errors.Join(a.policy.Close(), a.stack.Close(), a.kernel.Close(), a.gate.Close())
}
