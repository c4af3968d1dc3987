package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// removeTimeout bounds how long DEL and CHECK wait for the agent: a pod that ends waits for DEL.
const removeTimeout = 2 * time.Second

// Main runs the command that CNI_COMMAND names.
func Main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Check: check, Del: del, GC: gc, Status: status},
		cniversion.All, "sluice-cni "+version.Get().String())
}

// add registers the interface of a pod, and returns when it is blocked or enforced.
func add(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	if c.Dataplane == dataplaneVPP {
		return addVPP(args, c)
	}
	prev, err := c.previous()
	if err != nil {
		return err
	}
	r, err := registration(args, c.Name, prev)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout+answerTimeout) // the agent has its time to answer
	defer cancel()
	if err := (&attaching{config: c, registration: r, client: wire.NewClient(c.Socket), until: time.Now().Add(c.timeout)}).run(ctx); err != nil {
		return err
	}
	return types.PrintResult(prev, c.CNIVersion)
}

// registration returns the report about an attachment.
func registration(args *skel.CmdArgs, network string, prev *current.Result) (wire.Registration, error) {
	p, err := readPod(args.Args)
	if err != nil {
		return wire.Registration{}, err
	}
	end, err := nodeEnd(args.Netns, args.IfName)
	if err != nil {
		return wire.Registration{}, err
	}
	r := wire.Registration{
		Attachment: wire.Attachment{ContainerID: args.ContainerID, IfName: args.IfName},
		Namespace:  p.namespace, Name: p.name, UID: p.uid, Network: network, NetNS: args.Netns,
		HostIf: end.Name, HostIndex: uint32(end.Index), HostMAC: end.HardwareAddr.String(),
	}
	for _, ip := range prev.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			r.Addresses = append(r.Addresses, a.Unmap())
		}
	}
	if err := r.Check(); err != nil {
		return r, types.NewError(types.ErrInvalidEnvironmentVariables, "attachment cannot be registered", err.Error())
	}
	return r, nil
}

// check reports whether the interface of a pod is looked after.
func check(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	if c.Dataplane == dataplaneVPP {
		return checkVPP(args, c)
	}
	if _, err := c.previous(); err != nil {
		return err
	}
	end, err := nodeEnd(args.Netns, args.IfName)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	e, err := wire.NewClient(c.Socket).Wait(ctx, attachment(args), 0)
	switch {
	case err == nil && e.Index == uint32(end.Index):
		return nil
	case err == nil:
		return types.NewError(types.ErrInternal, fmt.Sprintf("interface %d is registered, and %d is the pod's", e.Index, end.Index), "")
	case refused(err):
		return types.NewError(types.ErrInternal, "the agent does not know the interface", err.Error())
	}
	if blocked, gateErr := isBlocked(c, uint32(end.Index)); gateErr == nil && blocked {
		return nil
	}
	return types.NewError(types.ErrTryAgainLater, "the agent does not answer", err.Error())
}

// del says that an attachment ends. Without an agent there is nothing to do: what blocks an
// interface ends with it, and so does what the agent knows of it.
func del(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	if c.Dataplane == dataplaneVPP {
		return delVPP(args, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	_ = wire.NewClient(c.Socket).Remove(ctx, attachment(args)) // DEL has to succeed, so that the pod ends
	return nil
}

// gc ends what the agent knows of attachments that are gone, and removes what blocks their
// interfaces. An agent that is away does so the next time.
func gc(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	if c.ValidAttachments == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "cni.dev/valid-attachments is missing", "")
	}
	if c.Dataplane == dataplaneVPP {
		return gcVPP(c)
	}
	valid := wire.Valid{Network: c.Name}
	for _, a := range c.ValidAttachments {
		valid.Attachments = append(valid.Attachments, wire.Attachment{ContainerID: a.ContainerID, IfName: a.IfName})
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	collected := wire.NewClient(c.Socket).Collect(ctx, valid)
	if _, err := isBlocked(c, 0); err != nil {
		return types.NewError(types.ErrIOFailure, "pins cannot be looked through", err.Error())
	}
	if refused(collected) {
		return types.NewError(types.ErrInternal, "the agent refuses the attachments", collected.Error())
	}
	return nil
}

// status reports whether ADD can be served. Without an agent it fails only if it was asked to: a
// node whose runtime is not ready loses its pods, on which policy is still enforced.
func status(args *skel.CmdArgs) error {
	c, err := readConfig(args.StdinData)
	if err == nil && c.Dataplane == dataplaneVPP {
		err = statusVPP(c)
	}
	if err != nil || c.AgentAbsent != agentAbsentFail {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if _, err := wire.NewClient(c.Socket).List(ctx); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "the agent does not answer", err.Error())
	}
	return nil
}

func attachment(args *skel.CmdArgs) wire.Attachment {
	return wire.Attachment{ContainerID: args.ContainerID, IfName: args.IfName}
}

// isBlocked reports whether an interface is blocked. It removes the pins of those that are gone.
func isBlocked(c *config, index uint32) (bool, error) {
	g := gate.New(c.Pins)
	blocked, err := g.Blocked()
	return slices.Contains(blocked, index), errors.Join(err, g.Close())
}

// refused reports whether the agent answered that it will not do what it was asked.
func refused(err error) bool {
	answer, ok := errors.AsType[*wire.Error](err)
	return ok && answer.Status < 500
}
