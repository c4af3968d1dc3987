package cni

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-net/sluice/endpoints/wire"
	"github.com/sluice-net/sluice/internal/cni/vppport"
)

// delVPP removes what addVPP made: in VPP first, so that nothing passes, and addresses last, so that
// no other pod has them before. Behind another plugin there is nothing to remove: that one removes the
// interface. It needs no agent, and no VPP that is not there.
func delVPP(args *skel.CmdArgs, c *config) error {
	if c.IPAM.Type == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), vppTimeout)
	defer cancel()
	p, _ := readPod(args.Args) // which need not be there
	if err := detach(ctx, c, p.uid, hostIfOf(c.Name, attachment(args))); err != nil {
		return err
	}
	_, _ = isBlocked(c, 0) // which removes pins of interfaces that are gone
	return invoke.DelegateDel(ctx, c.IPAM.Type, args.StdinData, nil)
}

// detach removes both sides of some interfaces, and the folders of their sockets. uid is of a pod that
// may have one; empty: not known.
func detach(ctx context.Context, c *config, uid string, hostIfs ...string) error {
	client, err := vppport.Dial(ctx, c.VPPSocket)
	if err != nil && !errors.Is(err, vppport.ErrAbsent) {
		return types.NewError(types.ErrTryAgainLater, "VPP cannot be reached", err.Error())
	}
	var before, after map[uint32]string
	var errs []error
	if client != nil {
		defer client.Close()
		before, err = client.Sockets(ctx)
		errs = append(errs, err)
	}
	for _, hostIf := range hostIfs {
		if client != nil {
			errs = append(errs, client.Detach(ctx, hostIf))
		}
		errs = append(errs, removePair(hostIf))
	}
	if client != nil {
		after, err = client.Sockets(ctx)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return types.NewError(types.ErrTryAgainLater, "the interface of the pod cannot be removed", err.Error())
	}
	var gone []string
	for id, path := range before {
		if after[id] == "" {
			gone = append(gone, path)
		}
	}
	if isName(uid) {
		gone = append(gone, filepath.Join(c.MemifFolder, uid, "any"))
	}
	if err := c.removeFolders(after, gone...); err != nil {
		return types.NewError(types.ErrIOFailure, "the folder of the pod's sockets cannot be removed", err.Error())
	}
	return nil
}

// checkVPP reports whether the interface of a pod is in VPP, and has its tag.
func checkVPP(args *skel.CmdArgs, c *config) error {
	p, err := readPod(args.Args)
	if err != nil {
		return err
	}
	if _, err := c.previous(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), vppTimeout)
	defer cancel()
	client, err := dial(ctx, c)
	if err != nil {
		return err
	}
	defer client.Close()
	a := &vppAttaching{config: c, args: args, pod: p, vpp: client}
	n, err := a.made(ctx)
	if err != nil {
		return err
	}
	if n.Tag != a.tag() {
		return types.NewError(types.ErrInternal, fmt.Sprintf("interface %s has the tag %q, want %q", n.Name, n.Tag, a.tag()), "")
	}
	if c.IPAM.Type == "" {
		return nil
	}
	return invoke.DelegateCheck(ctx, c.IPAM.Type, args.StdinData, nil)
}

// gcVPP removes the interfaces of this network that no attachment has, and has the IPAM plugin do the
// same with addresses.
func gcVPP(c *config) error {
	if c.IPAM.Type == "" {
		return nil // another plugin makes the interfaces
	}
	var valid []string
	for _, v := range c.ValidAttachments {
		valid = append(valid, hostIfOf(c.Name, wire.Attachment{ContainerID: v.ContainerID, IfName: v.IfName}))
	}
	ctx, cancel := context.WithTimeout(context.Background(), vppTimeout)
	defer cancel()
	client, err := dial(ctx, c)
	if err != nil {
		return err
	}
	mine, err := client.Mine(ctx, networkPrefix(c.Name))
	client.Close()
	if err != nil {
		return types.NewError(types.ErrIOFailure, "VPP's interfaces cannot be listed", err.Error())
	}
	err = detach(ctx, c, "", slices.DeleteFunc(mine, func(hostIf string) bool { return slices.Contains(valid, hostIf) })...)
	_, _ = isBlocked(c, 0) // which removes pins of interfaces that are gone
	return err
}

// statusVPP reports whether ADD can be served: not without VPP.
func statusVPP(c *config) error {
	ctx, cancel := context.WithTimeout(context.Background(), vppTimeout)
	defer cancel()
	client, err := vppport.Dial(ctx, c.VPPSocket)
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "VPP cannot be reached", err.Error())
	}
	client.Close()
	return nil
}
