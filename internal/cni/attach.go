package cni

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// retryEvery is how often an agent is asked again that is not there.
const retryEvery = 100 * time.Millisecond

// answerTimeout is how long the agent has for an answer before it is asked again.
const answerTimeout = time.Second

// attaching is an ADD under way.
type attaching struct {
	*config
	registration wire.Registration
	client       *wire.Client
	until        time.Time // the end of its time
}

// run blocks the interface, and returns when the agent knows of it, and, where it is to wait, when
// policy is enforced or the time is over. The runtime undoes an ADD that fails: it deletes the
// interface.
func (a *attaching) run(ctx context.Context) error {
	if err := a.block(); err != nil {
		return err
	}
	e, err := a.register(ctx)
	for ; err != nil; e, err = a.register(ctx) {
		if refused(err) {
			return types.NewError(types.ErrInternal, "the agent refuses the interface", err.Error())
		}
		// An agent that is there, but busy, has to learn of the interface: nothing else opens it.
		if !a.waits() && isAbsent(err) || time.Until(a.until) < retryEvery || !pause(ctx, retryEvery) {
			return a.late(a.AgentAbsent != agentAbsentBlock, "the agent does not answer", err.Error())
		}
	}
	if !a.waits() || e.State == wire.Enforced {
		return nil
	}
	return a.await(ctx)
}

// register tells the agent. An interface that the agent enforces already, and that this plugin
// blocked, begins anew: the agent opens what it blocks.
func (a *attaching) register(ctx context.Context) (wire.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	e, err := a.client.Register(ctx, a.registration)
	if err != nil || e.State != wire.Enforced {
		return e, err
	}
	if err := a.client.Remove(ctx, a.registration.Attachment); err != nil {
		return e, err
	}
	return a.client.Register(ctx, a.registration)
}

// block blocks the interface before anybody else is asked: an agent that answers late, or never,
// opens nothing.
func (a *attaching) block() error {
	g := gate.New(a.Pins)
	_, _ = g.Blocked() // which removes pins of interfaces that are gone; others are harmless
	if err := errors.Join(g.Block(a.registration.HostIndex), g.Close()); err != nil {
		return types.NewError(types.ErrInternal, "the interface cannot be blocked", err.Error())
	}
	return nil
}

// await waits until policy is enforced. The interface is blocked until it is.
func (a *attaching) await(ctx context.Context) error {
	e, err := a.client.Wait(ctx, a.registration.Attachment, max(0, time.Until(a.until)))
	switch {
	case err != nil:
		return a.late(false, "policy is not enforced yet", err.Error())
	case e.State != wire.Enforced:
		return a.late(false, "policy is not enforced yet", fmt.Sprintf("interface %s is %s: %s", e.Interface, e.State, e.Reason))
	}
	return nil
}

// late ends an ADD whose time is over. The interface is blocked: a pod that starts nevertheless has
// no network, without a sign of why.
func (a *attaching) late(fails bool, what, why string) error {
	if fails || a.waits() && a.OnTimeout == onTimeoutFail {
		return types.NewError(types.ErrTryAgainLater, what, why)
	}
	return nil
}

// isAbsent reports whether an error of the client means that no agent listens at the socket.
func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

// pause waits and reports whether the context is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
