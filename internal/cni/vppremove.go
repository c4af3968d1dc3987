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

	"github.com/sluice-net/sluice/internal/cni/vppport"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// delVPP removes what addVPP made: in VPP first, so that nothing passes, and addresses last, so
// that no other pod has them before. Behind another plugin there is nothing to remove: that one
// removes the interface. It needs no agent, and no VPP that is not there.
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

// detach removes both sides of some interfaces, and the folders of their sockets. uid is of a pod
// that may have one; empty: not known.
func detach(ctx context.Context, c *config, uid string, hostIfs ...string) error {
	var before, after map[uint32]string
	err := vppport.Talk(ctx, c.VPPSocket, func(ctx context.Context, client *vppport.Client) error {
		errs := make([]error, 2, 2+len(hostIfs))
		before, errs[0] = client.Sockets(ctx)
		for _, hostIf := range hostIfs {
			errs = append(errs, client.Detach(ctx, hostIf))
		}
		after, errs[1] = client.Sockets(ctx)
		return errors.Join(errs...)
	})
	switch {
	case errors.Is(err, vppport.ErrAbsent):
		err = nil // and no interface of it is there
	case errors.Is(err, vppport.ErrUnreachable):
		return unreachable(err)
	}
	for _, hostIf := range hostIfs {
		err = errors.Join(err, removePair(hostIf))
	}
	if err != nil {
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
	a := &vppAttaching{config: c, args: args, pod: p}
	var n vppport.Interface
	err = c.talk(ctx, func(ctx context.Context, client *vppport.Client) (err error) {
		n, err = a.made(ctx, client)
		return err
	})
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

// gcVPP removes the interfaces of this network that no attachment has, and has the IPAM plugin do
// the same with addresses.
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
	var mine []string
	err := c.talk(ctx, func(ctx context.Context, client *vppport.Client) (err error) {
		if mine, err = client.Mine(ctx, networkPrefix(c.Name)); err != nil {
			err = types.NewError(types.ErrIOFailure, "VPP's interfaces cannot be listed", err.Error())
		}
		return err
	})
	if err != nil {
		return err
	}
	err = detach(ctx, c, "", slices.DeleteFunc(mine, func(hostIf string) bool { return slices.Contains(valid, hostIf) })...)
	_, _ = isBlocked(c, 0) // which removes pins of interfaces that are gone
	return err
}

// statusVPP reports whether ADD can be served: not without VPP.
func statusVPP(c *config) error {
	ctx, cancel := context.WithTimeout(context.Background(), vppTimeout)
	defer cancel()
	err := vppport.Talk(ctx, c.VPPSocket, func(context.Context, *vppport.Client) error { return nil })
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "VPP cannot be reached", err.Error())
	}
	return nil
}
